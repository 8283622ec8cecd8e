"""Decode and fold a microbatch in this process (DuckDB): each key's last event, and the counts that Spark's fold makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_cdc.model.archive.survey import RecordKind, are_values
from airflow_cdc.model.columns import VALUE_POSITIONS
from airflow_cdc.model.errors import first_line
from airflow_cdc.model.operation import ROW_OPERATIONS
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.reach import Reach
from airflow_cdc.pipeline.apply.native.decode_sql import EVENTS, count_kinds, decode, read_images
from airflow_cdc.pipeline.apply.native.fold_sql import CHANGES, Fold, count_changes, find_reads, fold, look_beside, row_changes
from airflow_cdc.pipeline.apply.native.fold_undecided import CHOSEN, ImageRule, choose_events, fold_chosen
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.apply.native.left_out import find_left_out
from airflow_cdc.pipeline.apply.native.own_keys_sql import UNPROVEN, deletes_in_doubt, insert_deletes, look_at_updates, shows_another
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.evidence.snapshot_reads import LaneBeside, LaneReads
from airflow_cdc.pipeline.microbatch.count_events import Staged, count_surveyed
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb, rows_by_name
from airflow_cdc.pipeline.native.record_lines import RecordLines, UnpairedError, fetch
from airflow_cdc.pipeline.settle.plan_decoding import with_updates

_ROWS_AT_ONCE = 20_000
"""Of a batch; Spark reads groups of a staged file in tasks of their own."""
_KINDS = (*(each.value for each in ROW_OPERATIONS), RecordKind.TOMBSTONE.value)


@dataclass(frozen=True)
class NativeReads:
    """:class:`~airflow_cdc.pipeline.evidence.snapshot_reads.SnapshotReads`, found before they are asked for."""

    reads: Mapping[Position, Mapping[str, LaneReads]] = field(default_factory=dict)
    others: Mapping[Position, Mapping[str, LaneBeside]] = field(default_factory=dict)

    def by_lane(self) -> dict[Position, dict[str, LaneReads]]:
        """Return the reads of full snapshots by position and lane."""
        return {position: dict(lanes) for position, lanes in self.reads.items()}

    def beside(
        self, positions: Sequence[Position], found: Mapping[Position, Mapping[str, LaneReads]]
    ) -> dict[Position, dict[str, LaneBeside]]:
        """Return what the microbatch holds beside the reads of each snapshot, by lane."""
        return {position: dict(self.others[position]) for position in positions if position in found}


@dataclass(frozen=True, kw_only=True)
class NativeChanges:
    """Each key's last event of a microbatch, and the counts of all its events."""

    rows: Any
    """Arrow table: the source's columns, then operation, position, commit time, partition and offset. Where events leave values out, or
    deleted rows stay, also the positions of values, and the columns that only the table's row can provide (``__cdc_unavailable``). Where
    keys are handed on, also :data:`~airflow_cdc.pipeline.apply.native.fold_sql.OF_VERSIONS`."""
    staged: Staged
    reads: NativeReads


@dataclass(frozen=True, kw_only=True)
class NativeFold:
    """A microbatch's fold, as long as it is held."""

    how: Fold
    staged: Staged
    reads: NativeReads
    decoder: Decoder
    """With what the updates show (:func:`make_events`)."""
    connection: Any
    """Of DuckDB, with the fold's rows (:data:`~airflow_cdc.pipeline.apply.native.fold_sql.CHANGES`)."""

    @property
    def joins_events(self) -> bool:
        """Whether some rows follow from several events: their row versions, or a value that the last event leaves out."""
        if self.how.has_versions or not self.how.left_out:
            return self.how.has_versions
        return bool(self.read(f"SELECT 1 FROM {CHANGES} WHERE {VALUE_POSITIONS} IS NOT NULL LIMIT 1").num_rows)

    def read(self, query: str) -> Any:
        """Return the Arrow table of a query of the fold's rows.

        :raises HandedOver: where DuckDB fails.
        """
        import duckdb

        try:
            return self.connection.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise HandedOver(f"DuckDB failed: {first_line(error)}") from error

    def stream(self, query: str) -> Iterator[Any]:
        """Yield the record batches of a query of the fold's rows; not all of them are in memory at once.

        :raises HandedOver: where DuckDB fails.
        """
        import duckdb

        try:
            yield from self.connection.sql(query).to_arrow_reader(_ROWS_AT_ONCE)
        except duckdb.Error as error:
            raise HandedOver(f"DuckDB failed: {first_line(error)}") from error


@contextmanager
def folding(decoder: Decoder, archive: str, *, threads: int = 1) -> Iterator[NativeFold]:
    """Fold events to each key's row change.

    :param archive: URI of the root that the decoder's files lie below.
    :raises HandedOver: for a line that is not plain, a value that may not fit, a key whose row only Spark finds, records that the survey
        did not count, and a file that cannot be read from here.
    """
    import duckdb

    with connect_duckdb(threads=threads) as connection:
        decoder = make_events(connection, decoder, archive)
        try:
            how, lanes = _fold(connection, decoder, archive)
            reads = read_reads(connection, find_reads()) if count_surveyed(decoder.shapes).reads else NativeReads()
        except duckdb.Error as error:
            raise HandedOver(f"DuckDB failed: {first_line(error)}") from error
        yield NativeFold(how=how, staged=staged_of(lanes), reads=reads, connection=connection, decoder=decoder)


def fold_natively(decoder: Decoder, archive: str, *, threads: int = 1) -> NativeChanges:
    """Return each key's last event, as :func:`folding`."""
    with folding(decoder, archive, threads=threads) as fold:
        return changes_of(fold)


def changes_of(fold: NativeFold) -> NativeChanges:
    """Return the row changes of a fold, for delta-rs.

    :raises HandedOver: where DuckDB fails.
    """
    return NativeChanges(rows=fold.read(row_changes(fold.how)), staged=fold.staged, reads=fold.reads)


def _how(connection: Any, decoder: Decoder) -> Fold:
    surveyed, columns = count_surveyed(decoder.shapes), decoder.columns
    left_out = [column for (column,) in connection.execute(find_left_out(EVENTS)).fetchall()]
    if left_out and decoder.keeps_deleted:
        raise HandedOver("values that events leave out, in a table that flags deletes")
    return Fold(
        keys=columns.keys,
        columns=list(columns.types),
        are_values=are_values(decoder.shapes),
        has_reads=surveyed.reads > 0,
        reads_among_changes=surveyed.is_mixed,
        left_out=left_out,
        are_documents=decoder.dialect.documents,
        keeps_deleted=decoder.keeps_deleted,
        change_restarts=decoder.change_restarts,
    )


def _fold(connection: Any, decoder: Decoder, archive: str) -> tuple[Fold, list[dict[str, Any]]]:
    """Make the table of each key's row change, and return the sums by lane."""
    how = _how(connection, decoder)
    connection.execute(fold(how))
    lanes = rows_by_name(connection.execute(count_changes()))
    if any(lane["unresolved"] for lane in lanes):
        raise HandedOver("an unavailable value of a key whose events are not surely one row's")
    if any(lane["has_unordered"] for lane in lanes) and not how.are_documents:
        raise HandedOver("two events of a key with one position, in several partitions")
    if not any(lane["hazards"] for lane in lanes):
        return how, lanes
    if decoder.updates.changes:
        raise HandedOver("keys of the flow's own that are handed on from row to row")
    events = choose_events(connection, how)
    images = _read_lines(connection, decoder, archive, statement=lambda lines: read_images(decoder, lines, CHOSEN))
    fold_chosen(connection, how, events, images=images, rule=ImageRule.of(decoder))
    return replace(how, has_versions=True), rows_by_name(connection.execute(count_changes()))


def read_reads(connection: Any, query: str) -> NativeReads:
    """Return the reads of a full snapshot among the events.

    :param query: from :func:`airflow_cdc.pipeline.apply.native.fold_sql.find_reads`.
    :raises HandedOver: where there are reads of several.
    """
    rows = rows_by_name(connection.execute(query))
    if len({str(row["position"]) for row in rows}) > 1 or not all(row["is_only"] for row in rows):
        raise HandedOver("reads of several snapshots")
    reads = {
        str(row["lane"]): LaneReads(
            row["begin"],
            row["end"],
            row["reads"],
            ends_marked=row["ends_marked"],
            has_last=row["has_last"],
            is_initial=row["is_initial"],
            has_first=row["has_first"],
        )
        for row in rows
    }
    if not reads:
        return NativeReads()
    position = _position(rows[0]["position"])
    begins = {lane: each.begin for lane, each in reads.items() if each.begin is not None}
    others = {
        str(row["lane"]): LaneBeside(
            highest=_position(row["highest"]),
            streamed_before=row["streamed_before"] and _position(row["streamed_before"]),
            behind=row["behind"],
            has_unplaced_behind=bool(row["unplaced"]),
            names_gtids=row["names_gtids"],
        )
        for row in rows_by_name(connection.execute(look_beside(position, begins)))
    }
    return NativeReads({position: reads}, {position: others})


def make_events(connection: Any, decoder: Decoder, archive: str) -> Decoder:
    """Make the table of events (:data:`~airflow_cdc.pipeline.apply.native.decode_sql.EVENTS`).

    :return: the decoder, with what the updates show where the flow's keys are not the records'.
    :raises HandedOver: for a line that is not plain, a value that may not fit, records that the survey did not count, a delete whose key
        may be made of fillers, and a file that cannot be read from here.
    """
    splits = decoder.splits_key_changes
    _read_lines(connection, decoder, archive, statement=lambda lines: decode(decoder, lines))
    _check_kinds(decoder, connection.execute(count_kinds(splits=splits)).fetchall())
    if not splits:
        _check_deletes(connection, decoder, archive)
        return decoder
    updates = look_at_updates(connection, decoder, EVENTS)
    connection.execute(insert_deletes(decoder, EVENTS))
    return with_updates(decoder, updates)


def _check_deletes(connection: Any, decoder: Decoder, archive: str) -> None:
    """Look at the images of deletes whose key may be made of fillers alone: such keys are few.

    :raises HandedOver: where an image shows that it is.
    """
    if not decoder.guard.asks(decoder.updates):
        return
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {CHOSEN} AS {deletes_in_doubt(decoder, EVENTS)}")
    if not connection.execute(f"SELECT 1 FROM {CHOSEN} LIMIT 1").fetchall():
        connection.execute(f"DROP TABLE {CHOSEN}")
        return
    images = _read_lines(connection, decoder, archive, statement=lambda lines: read_images(decoder, lines, CHOSEN))
    connection.execute(f"DROP TABLE {CHOSEN}")
    if any(shows_another(decoder, image) for image in images):
        raise HandedOver(UNPROVEN)


def _read_lines(connection: Any, decoder: Decoder, archive: str, *, statement: Callable[[RecordLines], str]) -> list[dict[str, Any]]:
    """Execute a statement over the files, whose bytes are let go at its end, and return its rows.

    :raises HandedOver: for a line that is not plain, and a file that cannot be read from here.
    """
    import duckdb

    try:
        files = fetch(archive, decoder.files)
        text = statement(RecordLines(files, decoder.files, are_values=are_values(decoder.shapes)))
    except UnpairedError as error:
        raise HandedOver(f"values and keys may not pair: {error}") from error
    except OSError as error:
        raise HandedOver(f"the archive cannot be read from the driver: {first_line(error)}") from error
    connection.register_filesystem(files)
    try:
        return rows_by_name(connection.execute(text))
    except duckdb.Error as error:
        raise HandedOver(f"not all lines are plain: {files.named(first_line(error))}") from error
    finally:
        connection.unregister_filesystem(files.protocol)


def _check_kinds(decoder: Decoder, found: Sequence[tuple[str | None, int, str | None]]) -> None:
    """Compare the records with the survey's count, and look for one that is not plain."""
    if problem := min((each for _, _, each in found if each), default=None):
        raise HandedOver(problem)
    surveyed: dict[str, int] = {}
    for shape in decoder.shapes:
        surveyed[shape.kind] = surveyed.get(shape.kind, 0) + shape.records
    counted = {str(kind): count for kind, count, _ in found}
    if {kind: surveyed.get(kind, 0) for kind in _KINDS} != {kind: counted.get(kind, 0) for kind in _KINDS}:
        raise HandedOver("the files hold other records than the survey found")


def staged_of(lanes: Sequence[Mapping[str, Any]]) -> Staged:
    """Return the sums by lane as Spark's count of staged rows gives them.

    :param lanes: from :func:`airflow_cdc.pipeline.apply.native.fold_sql.count_changes`, or with the same columns.
    """
    reach = Reach(
        streamed_from=_positions(lanes, "streamed_from"),
        streamed_through=_positions(lanes, "streamed_through"),
        offset_from={str(lane["lane"]): lane["offset_from"] for lane in lanes if lane["offset_from"] is not None},
        offset_through={str(lane["lane"]): lane["offset_through"] for lane in lanes if lane["offset_through"] is not None},
        partitions=frozenset(str(lane["lane"]) for lane in lanes),
    )
    return Staged(
        events=_sum(lanes, "events"),
        keys=_sum(lanes, "keys"),
        redelivered=_sum(lanes, "redelivered"),
        conflicts=_sum(lanes, "conflicts"),
        to_delete=_sum(lanes, "to_delete"),
        to_insert=_sum(lanes, "to_insert"),
        has_deletes=any(lane["has_deletes"] for lane in lanes),
        last=_positions(lanes, "last"),
        reach=reach,
        committed_through=max((lane["committed_through"] for lane in lanes if lane["committed_through"] is not None), default=None),
        falls=any(lane["tail"]["commit"] < lane["streamed_through"]["commit"] for lane in lanes if lane["tail"]),
    )


def _sum(lanes: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(int(lane[name]) for lane in lanes)


def _positions(lanes: Sequence[Mapping[str, Any]], name: str) -> dict[str, Position]:
    return {str(lane["lane"]): _position(lane[name]) for lane in lanes if lane[name] is not None}


def _position(found: Mapping[str, Any]) -> Position:
    return Position(*(int(found[part]) for part in ("commit", "change", "serial")))
