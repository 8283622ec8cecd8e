"""SourceComparison: compare the tables of a lake with their source database by hashes, and decide about differences by a later look.

While it compares, the source goes on, and the table is behind it by what is not archived and applied yet. So a difference proves nothing
by itself. It counts when nothing of that row has changed on either side, and the lake shows that more than the row's change must have
arrived: the flow has nothing pending, and a flow of the same source applied what was committed a while later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.hooks.source_catalogue import SourceCatalogue
from airflow_cdc.model.catalogue.row_hashes import Dialect
from airflow_cdc.model.columns import POSITION
from airflow_cdc.model.errors import ConfigurationError, SourceFailedError, StateUnreadableError
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.pull.cell_forms import DUCKDB, form_of
from airflow_cdc.model.pull.compared_rows import NoHashError, OpenRow, Side, compare_all, look_again
from airflow_cdc.model.pull.settings import settings_of
from airflow_cdc.model.pull.tables import Table, tables_of
from airflow_cdc.model.state.comparison import FlowComparison, FlowComparisons
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.pipeline.look.flow_rows import live_table
from airflow_cdc.pipeline.look.native_table import NativeTable, NeedsSparkError
from airflow_cdc.pipeline.spark.storage import scoped_options

_QUIET = 86_400_000
"""Milliseconds after which a source that sent nothing more counts as quiet: whatever it had committed has arrived."""
_SAMPLE = 10
_MARK = DUCKDB.hash_of_text(f"CAST({DUCKDB.quote(POSITION)} AS VARCHAR)")
"""Of a row of ours: a hash of the position of the event that wrote it."""


def _refusal(error: SourceFailedError | NoHashError) -> str:
    if isinstance(error, SourceFailedError):
        return error.message
    return "The database gives no hash of a row: a value is longer than it hands to a function, as its max_allowed_packet has it."


class _NotComparedError(Exception):
    """Raised for a flow that cannot be compared; its text is the reason."""


@dataclass(frozen=True)
class SourceComparison:
    """The tables of a lake beside their source.

    :param settle_seconds: how long after a moment the lake must show the source's commits, at least, before it must show all of that
        moment: longer than the sink keeps events before it writes a file.
    """

    archive: CdcArchiveHook
    lake: CdcLakeHook
    source: SourceCatalogue
    tables: Sequence[str] = ()
    settle_seconds: float = 900

    def flows(self) -> list[FlowComparison]:
        """Return the last comparison of each flow of the archive that the globs match, the longest ago first."""
        found = map(self._before, self._named)
        return sorted(found, key=lambda each: (each.at, each.flow))

    @cached_property
    def _named(self) -> list[str]:
        state = ArchiveState(self.lake.fs, self.lake.fs_root, self.archive.root)
        # A lake's other archives have other sources.
        return [flow for flow in state.flows(state.ledger(write=False)) if matches_any(flow, self.tables)]

    def _before(self, flow: str) -> FlowComparison:
        try:
            return self._states.of(flow, self._folder(flow))
        except StateUnreadableError:
            # The comparison writes it anew.
            return FlowComparison(flow)

    def compare(self, before: FlowComparison, run: str) -> FlowComparison:
        """Compare all rows of a flow, and record the result.

        :param before: its last comparison.
        :raises SourceFailedError, ConfigurationError: when the database does not answer at all, or its connection cannot be used.
        """
        flow = before.flow
        try:
            with scoped_options(self.lake.storage_settings().file_systems):
                sides = self._sides(flow)
                at = self._now()
                found = compare_all(sides.source, sides.table, at, sides.held.count())
        except (_NotComparedError, NeedsSparkError) as reason:
            return self._put(FlowComparison(flow, run, skipped=str(reason), verified_through=before.verified_through))
        except (SourceFailedError, NoHashError) as refused:
            return self._put(FlowComparison(flow, run, self._now(), error=_refusal(refused), verified_through=before.verified_through))
        made = FlowComparison(flow, run, at, found.source_rows, found.table_rows, sides.left_out, found.open, found.is_cut)
        return self._put(replace(made, verified_through=at if made.is_equal else before.verified_through))

    def look_again(self, before: FlowComparison) -> FlowComparison:
        """Look at a flow's open rows again, and record the result.

        :raises SourceFailedError, ConfigurationError: as :meth:`compare`.
        """
        flow = before.flow
        try:
            # Before the rows are read: what these lack by then, they had to show.
            at = self._now()
            is_settled = self._settled(flow, at)
            with scoped_options(self.lake.storage_settings().file_systems):
                sides = self._sides(flow)
                found = look_again(before.open, sides.source, sides.table, at, is_settled)
                sample = tuple(islice(_sample(found.different, sides), _SAMPLE))
        except (_NotComparedError, NeedsSparkError) as reason:
            return self._put(replace(before, open=(), skipped=str(reason)))
        except (SourceFailedError, NoHashError) as refused:
            # A database that is away refuses the clock too; else one table would keep all others from being compared.
            self._now()
            return self._put(replace(before, open=(), error=_refusal(refused)))
        made = replace(
            before, open=found.open, different=before.different + len(found.different), sample=(*before.sample, *sample)[:_SAMPLE]
        )
        return self._put(replace(made, verified_through=made.at) if made.is_equal else made)

    def _put(self, found: FlowComparison) -> FlowComparison:
        self._states.put(self._folder(found.flow), found)
        return found

    @property
    def _states(self) -> FlowComparisons:
        return FlowComparisons(self.lake.fs, self.lake.fs_root)

    def _state(self, flow: str) -> FlowState:
        return FlowState(self.lake.fs, self.lake.fs_root, flow)

    def _folder(self, flow: str) -> str:
        return self._state(flow).folder

    def _now(self) -> int:
        return int(str(self.source.ask(self._dialect.clock)[0][0]))

    @cached_property
    def _dialect(self) -> Dialect:
        found = self.source.dialect
        if found is None:
            raise _NotComparedError(f"a source of {self.source.connector} cannot be compared by hashes")
        return found

    @cached_property
    def _tables(self) -> list[Table]:
        return self.source.tables()

    def _table(self, flow: str) -> Table:
        try:
            found = tables_of(self.source.connector, [flow], self._tables, {})[flow]
        except ConfigurationError as error:
            raise _NotComparedError(error.message) from error
        ends = tuple(f".{end}" for end in found.topic_ends(self.source.connector))
        if others := [each for each in self._named if each != flow and each.endswith(ends)]:
            raise _NotComparedError(
                f"{', '.join(others)} may be of the same table of another server; choose the flows of this one by tables"
            )
        return found

    def _sides(self, flow: str) -> _Sides:
        dialect, table = self._dialect, self._table(flow)
        if not self._state(flow).checkpoint(write=False).table:
            raise _NotComparedError("the flow has no table yet")
        held = live_table(self.lake.root, flow)
        if not held.keys or held.mode in {TableMode.CHANGE_LOG, TableMode.MULTISET}:
            raise _NotComparedError("the table has no row for each key")
        schema = self.source.schema(flow, table, settings_of(self.source.connector))
        theirs = {column.name: column for column in schema.columns}
        forms = {name: form_of(theirs[name], held.types[name]) for name in sorted(held.source_columns) if name in theirs}
        columns = {name: form for name, form in forms.items() if form is not None}
        if lacking := [key for key in held.keys if key not in columns]:
            raise _NotComparedError(f"the source cannot spell the key's columns {', '.join(lacking)} as the table does")
        there = self.source.relation(table)
        left_out = (
            *(f"{name}: {theirs[name].native} and {held.types[name]}" for name, form in forms.items() if form is None),
            *(f"{name}: absent in the source" for name in held.source_columns if name not in theirs),
            *(f"{name}: absent in the table" for name in theirs if name not in held.types),
        )
        ours = Side(held.ask, DUCKDB, f"{held.live} AS cdc_rows", columns, held.keys, _MARK)
        return _Sides(Side(self.source.ask, dialect, there, columns, held.keys), ours, held, left_out)

    def _settled(self, flow: str, now: int) -> Callable[[int], bool]:
        """Return whether a flow's table must show all that the source held at a moment of its clock.

        :param now: what that clock shows.
        """
        _, behind = self.archive.lag(self.lake, [flow])
        table = self._table(flow)
        end = next((end for end in table.topic_ends(self.source.connector) if flow.endswith(f".{end}")), "")
        prefix = flow[: len(flow) - len(end)]
        # By whole names: "srv.eu.public.t" is of another connector than "srv.public.t".
        theirs = {f"{prefix}{end}" for each in self._tables for end in each.topic_ends(self.source.connector)}
        times = [self._state(each).checkpoint(write=False).committed_through for each in self.lake.flows() if each in theirs]
        shown = max((at for at in times if at is not None), default=0)
        return lambda moment: flow not in behind and (shown >= moment + self.settle_seconds * 1000 or now >= moment + _QUIET)


@dataclass(frozen=True)
class _Sides:
    source: Side
    table: Side
    held: NativeTable
    left_out: tuple[str, ...]


def _sample(different: Sequence[OpenRow], sides: _Sides) -> Iterator[Mapping[str, str]]:
    """Yield the keys of some rows as text, each with ``side``."""
    some = different[:_SAMPLE]
    texts = {
        **sides.table.key_texts([row.key for row in some if row.source is None]),
        **sides.source.key_texts([row.key for row in some if row.source is not None]),
    }
    for row in some:
        side = "extra" if row.source is None else "missing" if row.table is None else "different"
        yield {"side": side, **texts.get(row.key, {})}
