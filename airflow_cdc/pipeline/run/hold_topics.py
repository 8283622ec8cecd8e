"""Hold topics: records of topics that are not flows stay in the archive's quarantine until the topics become flows.

No flow plans their files, so nothing is lost and nothing needs to be undone: a topic that becomes a flow is applied from its first file
on, and then leaves the quarantine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import RecordLayout, Survey
from airflow_cdc.model.archive.topics import NO_TOPIC
from airflow_cdc.model.columns import FILE, LINE, RAW, RAW_KEY
from airflow_cdc.model.errors import RejectReason
from airflow_cdc.model.flow.new_topics import HeldTopic
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.read.read_lines import read_lines
from airflow_cdc.pipeline.record.append_once import read_appended
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.session import session_for_batch
from airflow_cdc.pipeline.survey.survey_files import named_lines

_MOST_AT_ONCE = 1000
"""Maximum number of topics in one statement."""


@dataclass(frozen=True)
class ArchiveQuarantine:
    """The quarantine of an archive's records that belong to no flow."""

    spark: SparkSession
    uri: str
    """From :func:`airflow_cdc.model.places.archive_quarantine_uri`."""
    state: ArchiveState

    def hold(self, topics: Mapping[str, HeldTopic], ledger: Ledger) -> dict[str, HeldTopic]:
        """Write the records of held topics that no run has written yet; return the topics with their counts in the quarantine.

        After a crash before the state is written, the next run overwrites these records with the same ones.
        """
        known = self.state.held_topics()
        found: dict[str, HeldTopic] = {}
        to_write: dict[tuple[int, int], list[HeldTopic]] = {}
        for name, topic in topics.items():
            before = known.get(name, topic)
            held = replace(before, reason=topic.reason, detail=topic.detail, added=0)
            last = ledger.latest.get(name, 0)
            if last > held.through:
                first = max(held.through + 1, ledger.topics[name])
                files, records = _size(self.state.surveys(first, last), name)
                held = replace(held, files=held.files + files, records=held.records + records, through=last, added=records)
                to_write.setdefault((first, last), []).append(held)
            found[name] = held
        for (first, last), members in sorted(to_write.items()):
            for at in range(0, len(members), _MOST_AT_ONCE):
                self._write(members[at : at + _MOST_AT_ONCE], list(self.state.surveys(first, last)))
        self.state.write_held_topics({**known, **{name: replace(topic, added=0) for name, topic in found.items()}})
        return found

    def release(self, topics: Collection[str]) -> None:
        """Remove the records of topics that have become flows and own their records now."""
        known = self.state.held_topics()
        gone = sorted(known.keys() & {*topics})
        if not gone:
            return
        if read_appended(self.spark, self.uri) is not None:
            self.spark.sql(f"DELETE FROM {sql.delta(self.uri)} WHERE {_is_one_of(gone)}")
        self.state.write_held_topics({name: topic for name, topic in known.items() if name not in gone})

    def _write(self, topics: Collection[HeldTopic], surveys: Collection[Survey]) -> None:
        names = {topic.topic for topic in topics}
        files = {file.path: file for survey in surveys for name in names for file in survey.files_of(name) if file.path not in survey.void}
        if not files:
            return
        session = session_for_batch(self.spark, batch_bytes=sum(file.text_size for file in files.values()))
        rows = _quarantined(session, self.state.archive, list(files.values()), surveys, {topic.topic: topic for topic in topics})
        numbers = ", ".join(str(survey.number) for survey in surveys)
        where = f"microbatch IN ({numbers}) AND {_is_one_of(names)}"
        rows.write.format("delta").mode("overwrite").option("replaceWhere", where).save(self.uri)


def _is_one_of(topics: Iterable[str]) -> str:
    # A line that names no topic has NULL there.
    return f"coalesce(topic, {sql.text(NO_TOPIC)}) IN ({', '.join(map(sql.text, sorted(topics)))})"


def _size(surveys: Iterable[Survey], topic: str) -> tuple[int, int]:
    """Return how many surveyed files hold records of a topic, and how many records."""
    shapes = [shape for survey in surveys for shape in survey.shapes if shape.topic == topic and shape.file not in survey.void]
    return len({shape.file for shape in shapes}), sum(shape.records for shape in shapes)


def _quarantined(
    session: SparkSession, archive: str, files: list[ArchivedFile], surveys: Iterable[Survey], topics: Mapping[str, HeldTopic]
) -> DataFrame:
    """Return the lines of topics as :data:`~airflow_cdc.pipeline.record.quarantine.QUARANTINE_SCHEMA`; microbatch: the survey's number."""
    here = {file.path for file in files}
    placed = [
        (path, survey.number, place.rest, place.layout is RecordLayout.RECORD)
        for survey in surveys
        for path, place in survey.placed().items()
        if path in here and path not in survey.void
    ]
    of_files = session.createDataFrame(placed, f"{FILE} STRING, survey BIGINT, rest STRING, names_topics BOOLEAN")
    of_topics = session.createDataFrame(
        [(name, topic.reason.value, topic.detail or None) for name, topic in topics.items()], "of STRING, why STRING, detail STRING"
    )
    lines = named_lines(read_lines(session, archive, files, numbered=True), LINE)
    owned = lines.join(F.broadcast(of_files), FILE).withColumn("of", F.expr("coalesce(if(names_topics, topic, NULL), rest)"))
    theirs = owned.join(F.broadcast(of_topics), "of")
    broken = f"if(is_utf8, '{RejectReason.MALFORMED_JSON.value}', '{RejectReason.INVALID_UTF8.value}')"
    return theirs.selectExpr(
        "survey AS microbatch",
        f"if(of = {sql.text(NO_TOPIC)} AND corrupt, {broken}, why) AS reason",
        "detail",
        f"nullif(of, {sql.text(NO_TOPIC)}) AS topic",
        "try_cast(partition AS INT) AS partition",
        "try_cast(`offset` AS BIGINT) AS `offset`",
        f"{FILE} AS file",
        f"{LINE} AS line",
        f"make_valid_utf8({RAW}) AS raw",
        f"make_valid_utf8({RAW_KEY}) AS raw_key",
    )
