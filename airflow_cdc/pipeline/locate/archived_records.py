"""ArchivedRecords: positions of the records of a flow's files in the source's log, with their epochs, without decoding them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.completeness import ArchivedOffsets
from airflow_cdc.model.columns import FILE, KIND, OFFSET, OP, ORDINAL, PARTITION, POSITION, RAW, RAW_KEY, REJECT, SNAPSHOT
from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.errors import SourceLogWentBackError
from airflow_cdc.model.position.as_of import EpochSpan
from airflow_cdc.model.position.epochs import FIRST_EPOCH, Epochs
from airflow_cdc.model.position.lives import Lives, needs_lines
from airflow_cdc.model.position.position import EPOCH
from airflow_cdc.pipeline.decode.decode_events import ORDINAL_TYPE
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE
from airflow_cdc.pipeline.decode.lanes import in_epoch, is_lane
from airflow_cdc.pipeline.locate.epoch_begins import IS_READ, fallen_events, first_by_lane, open_gaps, with_next_epoch
from airflow_cdc.pipeline.read.read_lines import file_literal, read_lines
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.survey.commit_positions import COMMIT, COMMITTED_MS, READ_COMMIT, member, parse_lines, with_lanes

_KEY = "__cdc_key"
_POSITION = f"coalesce({COMMIT}, {READ_COMMIT})"


@dataclass(frozen=True)
class ArchivedRecords:
    """The records of a flow's archived files that carry a position."""

    spark: SparkSession
    archive: str
    """URI of the archive's root."""
    files: Sequence[ArchivedFile]
    flow: str
    connector: str
    """``source.connector``: defines the position."""
    lives: Lives
    """The lives of the topic, by file."""

    def in_epochs(self, epochs: Epochs) -> DataFrame:
        """Return one row per record: its lane, ordinal, commit time, and its commit position in its epoch, streamed or read."""
        commits = (f"{in_epoch(name, epochs)} AS {name}" for name in (COMMIT, READ_COMMIT))
        return self._records.selectExpr(PARTITION, ORDINAL, COMMITTED_MS, *commits)

    def find_epochs(self, known: Epochs = FIRST_EPOCH, offsets: ArchivedOffsets | None = None) -> Epochs:
        """Return the begins of epochs of the source's log, as found by a run that applies all of the files at once.

        Costs a sort of the records, and two more passes for each epoch.

        :param known: the epochs known so far.
        :param offsets: of the files, by lane: while offsets are missing that may hold a first delivery, no epoch begins; None: not asked.
        :raises SourceLogWentBackError: if an epoch begins inside a file whose records have no offsets.
        """
        epochs = known
        # A clock does not go back: a lower position is a late event.
        while CONNECTORS[self.connector].position.goes_back:
            events = self._events(epochs)
            firsts = first_by_lane(fallen_events(events, [_KEY]))
            is_read = any(first[IS_READ] for first in firsts.values())
            if not firsts or (offsets and not is_read and open_gaps(firsts, offsets, self.flow)):
                break
            for lane, first in sorted(firsts.items()):
                self._refuse_inside_of_a_file(events, lane, first)
            epochs = with_next_epoch(events, epochs, firsts)
        return epochs

    def spans(self, epochs: Epochs) -> tuple[EpochSpan, ...]:
        """Return the span of each epoch in the files; none, and at no cost, if there is only one epoch."""
        if not epochs.newest:
            return ()
        placed = self.in_epochs(epochs).selectExpr(f"{_POSITION} AS position", COMMITTED_MS)
        rows = (
            placed.selectExpr("CAST(floor(position / CAST('1e36' AS DECIMAL(38,0))) AS INT) AS epoch", "*")
            .groupBy("epoch")
            .agg(*[pick(name).alias(f"{pick.__name__}_{name}") for name in ("position", COMMITTED_MS) for pick in (F.min, F.max)])
            .orderBy("epoch")
            .collect()
        )
        return tuple(_span(row) for row in rows)

    def turn(self, epochs: Epochs) -> tuple[int | None, int | None]:
        """Return the commit times of the last streamed event before the newest epoch and of the first in it, in ms since 1970.

        None if the files hold no such event.
        """
        is_new = F.col(COMMIT) >= F.expr(f"{epochs.newest * EPOCH}BD")
        last, first = F.max(F.when(~is_new, F.col(COMMITTED_MS))), F.min(F.when(is_new, F.col(COMMITTED_MS)))
        row = self.in_epochs(epochs).agg(last.alias("last"), first.alias("first")).collect()[0]
        return row["last"], row["first"]

    @cached_property
    def _records(self) -> DataFrame:
        """The lines that are records of the flow with a position, with the members from which the position is made."""
        lines = read_lines(self.spark, self.archive, self.files, numbered=needs_lines(self.lives))
        located = with_lanes(parse_lines(lines, "", CONNECTORS[self.connector]), self.files, self.lives)
        known = f"coalesce(topic, {file_literal(self.files, 'topic', 'STRING')}, {sql.text(self.flow)})"
        own = f"try_cast(get_json_object({RAW}, '$.offset') AS BIGINT)"
        ordinal = f"{_ordinal(OFFSET, f'{ORDINAL}.block', f'{ORDINAL}.row')} AS {ORDINAL}"
        ours = located.filter(f"{known} = {sql.text(self.flow)} AND {_POSITION} IS NOT NULL")
        return ours.selectExpr(
            FILE, RAW, RAW_KEY, PARTITION, f"{own} AS {OFFSET}", ordinal, COMMIT, READ_COMMIT, COMMITTED_MS, member("op"), member("source")
        )

    def _events(self, epochs: Epochs) -> DataFrame:
        """Return the records as decoded events, with the columns that :mod:`airflow_cdc.pipeline.locate.epoch_begins` needs."""
        rule = CONNECTORS[self.connector].position
        commit = in_epoch(_POSITION, epochs)
        place = "if(op = 'r', -1, {})"
        change, serial = (place.format(part) for part in (rule.change, rule.serial))
        position = f"CAST(named_struct('commit', {commit}, 'change', {change}, 'serial', {serial}) AS {POSITION_TYPE})"
        return self._records.selectExpr(
            FILE,
            RAW,
            PARTITION,
            OFFSET,
            ORDINAL,
            f"op AS {KIND}",
            f"op AS {OP}",
            f"{position} AS {POSITION}",
            f"source.snapshot AS {SNAPSHOT}",
            f"CAST(NULL AS STRING) AS {REJECT}",
            f"xxhash64(coalesce(get_json_object({RAW}, '$.key'), {RAW_KEY})) AS {_KEY}",
        )

    def _refuse_inside_of_a_file(self, events: DataFrame, lane: str, first: Row) -> None:
        ordinal = first[ORDINAL]
        if first[OFFSET] is not None:
            return
        place = _ordinal(ordinal["offset"], ordinal["block"], ordinal["row"])
        before = f"{is_lane(lane)} AND {FILE} = {sql.text(first[FILE])} AND {ORDINAL} < {place}"
        if ordinal["offset"] is None or events.filter(before).head(1):
            raise SourceLogWentBackError(
                f"Flow {self.flow}: the source's log went back inside of {first[FILE]}, and the file's records carry no offsets that would"
                " divide it, so the epoch of each record is not known.",
                next_step="Divide the file where the positions fall, the second part under a name with its own first offset; or leave the"
                " position or time out.",
                lane=lane,
                file=first[FILE],
            )


def _ordinal(offset: object, block: object, row: object) -> str:
    """Return the SQL of an ordinal (:data:`ORDINAL_TYPE`) among the records of one lane."""
    members = f"'offset', {offset}, 'run', NULL, 'file', NULL, 'block', {block}, 'row', {row}"
    return f"CAST(named_struct({members}) AS {ORDINAL_TYPE})"


def _span(row: Row) -> EpochSpan:
    first, last = (int(row[f"{pick}_position"]) % EPOCH for pick in ("min", "max"))
    return EpochSpan(row["epoch"], first, last, row[f"min_{COMMITTED_MS}"], row[f"max_{COMMITTED_MS}"])
