"""Check the event counts in transactions' END records against the archived events; reads each new file once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import Survey
from airflow_cdc.model.archive.transactions import MOST_REMEMBERED, LogStart, Place, Transaction, TransactionLedger, end_place
from airflow_cdc.model.look.whole_cut import connectors_with_transactions
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.read.read_lines import file_literal, read_lines
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.session import session_for_batch
from airflow_cdc.pipeline.survey.commit_positions import COMMIT, COMMITTED_MS, comparable_dialect, member, parse_lines

NO_STARTS: Mapping[str, LogStart] = MappingProxyType({})
"""No log went back since the last check."""

_ANNOUNCED = (
    "status: STRING, id: STRING, ts_ms: BIGINT, data_collections: ARRAY<STRUCT<data_collection: STRING, event_count: BIGINT>>,"
    " transaction: STRUCT<id: STRING, data_collection_order: BIGINT>"
)


def check_transactions(
    spark: SparkSession, state: ArchiveState, ledger: Ledger, files: Sequence[ArchivedFile], starts: Mapping[str, LogStart] = NO_STARTS
) -> TransactionLedger:
    """Return the ledger of incomplete transactions, up to date with the surveys. A connector without transaction topic has none.

    :param files: the files that are still in the archive.
    :param starts: by ``topic.prefix``: epochs of the logs that were found since the last check. Their transactions are searched in all
        files again.
    """
    prefixes = connectors_with_transactions(ledger)
    anew = [prefix for prefix in starts if prefix in prefixes]
    known = state.transactions().beginning(starts)
    look = _Look(spark, state, ledger, frozenset(file.path for file in files))
    done = known.surveyed_through
    for survey in state.surveys(1 if anew else done + 1, ledger.surveyed_through):
        asked = prefixes if survey.number > done else anew
        found = {prefix: look.find(survey, prefix, known.start_of(prefix)) for prefix in asked}
        known = known.with_survey(max(survey.number, done), found, ledger.tables())
    state.write_transactions(known)
    return known


@dataclass(frozen=True)
class _Look:
    """Searches surveyed files for transactions."""

    spark: SparkSession
    state: ArchiveState
    ledger: Ledger
    there: frozenset[str]
    """Paths of the files that are still in the archive."""

    def find(self, survey: Survey, prefix: str, start: LogStart) -> list[Transaction]:
        """Return a connector's transactions in a survey's files, in the epoch of its log that begins at ``start``."""
        tables = {topic: topic.removeprefix(f"{prefix}.") for topic in self.ledger.tables() if topic.startswith(f"{prefix}.")}
        holding = {shape.file for shape in survey.shapes if shape.topic in tables or shape.topic == f"{prefix}.transaction"}
        held = [file for file in survey.files if file.path in holding & self.there]
        if not held:
            return []
        connectors = {shape.connector for shape in survey.shapes if shape.topic in tables and shape.connector}
        session = session_for_batch(self.spark, batch_bytes=sum(file.text_size for file in held))
        lines = parse_lines(read_lines(session, self.state.archive, held), _ANNOUNCED, comparable_dialect(connectors))
        rows = _records(lines, held, prefix, tables, since_ms=start.since_ms)
        return [_transaction(row.asDict(recursive=True), survey.number) for row in rows]


def _records(lines: DataFrame, files: Sequence[ArchivedFile], prefix: str, tables: Mapping[str, str], *, since_ms: int | None) -> list[Row]:
    """Return announced and held events by key: for the transactions that are incomplete in the files, and the newest complete ones.

    :param since_ms: commit time of the first of them at the source; None: all. An END carries the source's time, but no position.
    """
    records = lines.selectExpr(
        f"coalesce(topic, {file_literal(files, 'topic', 'STRING')}) AS topic",
        *[member(name) for name in ("status", "id", "ts_ms", "data_collections", "transaction")],
        COMMIT,
        COMMITTED_MS,
    )
    if since_ms is not None:
        records = records.filter(f"coalesce({COMMITTED_MS}, ts_ms) >= {since_ms}")
    seen = _seen(records.filter(F.col("topic").isin(list(tables))))
    announced = _announced(records.filter(F.col("topic") == f"{prefix}.transaction"), list(tables.values()))
    is_whole = F.expr("coalesce(announced_count <= coalesce(seen_count, 0), false)")
    # Of a complete transaction only the place still matters, to recognise late copies of its events. If there are very many, the newest
    # must do. One more is returned, so that the ledger knows that there were others.
    newest = F.expr("row_number() OVER (PARTITION BY whole ORDER BY ended DESC NULLS LAST)")
    both = announced.join(seen, "key", "full_outer").withColumn("whole", is_whole).withColumn("newest", newest)
    return both.filter(f"NOT whole OR newest <= {MOST_REMEMBERED + 1}").collect()


def _key(identifier: str) -> str:
    """Return the SQL of :func:`airflow_cdc.model.archive.transactions.transaction_key`."""
    return f"regexp_replace({identifier}, '^([0-9]+):[0-9]+$', '$1')"


def _seen(events: DataFrame) -> DataFrame:
    """Return by key: seen_count, seen as (topic, first, last) of the observed orders, and lowest and highest commit position."""
    placed = events.selectExpr(f"{_key('transaction.id')} AS key", "topic", "transaction.data_collection_order AS place", COMMIT)
    lowest, highest = F.min(COMMIT).alias("commit"), F.max(COMMIT).alias("last_commit")
    # An event sent again after a restart has the same order, but may have another commit position.
    orders = placed.dropna(subset=["key", "topic", "place"]).groupBy("key", "topic", "place").agg(lowest, highest)
    stretch = F.expr("place - row_number() OVER (PARTITION BY key, topic ORDER BY place)")
    ranges = orders.withColumn("stretch", stretch).groupBy("key", "topic", "stretch")
    ends = (
        F.min("place").alias("first"),
        F.max("place").alias("last"),
        F.min("commit").alias("commit"),
        F.max("last_commit").alias("last_commit"),
    )
    count, seen = F.sum(F.expr("last - first + 1")), F.collect_list(F.struct("topic", "first", "last"))
    return (
        ranges.agg(*ends)
        .groupBy("key")
        .agg(count.alias("seen_count"), seen.alias("seen"), F.min("commit").alias("commit"), F.max("last_commit").alias("last_commit"))
    )


def _announced(records: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return by key: announced_count over the archived collections, announced as (collection, count), ended and the END's own id.

    announced_count is NULL if only BEGIN is archived.
    """
    ends = records.filter("status IN ('BEGIN', 'END')").selectExpr(
        _key("id") + " AS key",
        "if(status = 'END', coalesce(ts_ms, 0), NULL) AS ended",
        "if(status = 'END', id, NULL) AS id",
        "explode_outer(data_collections) AS part",
    )
    # The END that a connector repeats after a crash may have no counts: use the highest.
    counts = ends.groupBy("key", F.col("part.data_collection").alias("collection")).agg(
        F.max("part.event_count").alias("count"), F.min("ended").alias("ended"), F.min_by("id", "ended").alias("id")
    )
    archived = " OR ".join(f"collection = {sql.text(name)} OR endswith(collection, {sql.text('.' + name)})" for name in names) or "false"
    return counts.groupBy("key").agg(
        F.min("ended").alias("ended"),
        F.min_by("id", "ended").alias("id"),
        F.expr(f"if(max(ended) IS NULL, NULL, sum(if({archived}, coalesce(count, 0), 0)))").alias("announced_count"),
        F.collect_list(F.when(F.col("collection").isNotNull(), F.struct("collection", "count"))).alias("announced"),
    )


def _transaction(row: dict[str, Any], survey: int) -> Transaction:
    seen: dict[str, list[tuple[int, int]]] = {}
    for item in row["seen"] or ():
        seen.setdefault(item["topic"], []).append((item["first"], item["last"]))
    expected = None if row["ended"] is None else {item["collection"]: item["count"] for item in row["announced"]}
    ended = None if row["ended"] is None else end_place(row["id"], row["ended"])
    commits = (None if row[name] is None else int(row[name]) for name in ("commit", "last_commit"))
    return Transaction(
        row["key"], expected, {topic: tuple(sorted(ranges)) for topic, ranges in seen.items()}, survey, Place(ended, *commits)
    )
