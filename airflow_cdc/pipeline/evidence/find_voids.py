"""Find what truncates and proven snapshots make void: events of the microbatch, and rows of the target."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_cdc.model.columns import PARTITION
from airflow_cdc.model.position.lives import is_of_life
from airflow_cdc.model.position.reach import UNKNOWN_PARTITION
from airflow_cdc.model.position.snapshot import Snapshot
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.decode.position_literal import before
from airflow_cdc.pipeline.decode.stands_before import stands_before
from airflow_cdc.pipeline.evidence.find_snapshot import Snapshots, may_replace
from airflow_cdc.pipeline.microbatch.count_events import Truncates
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.target.flag_deletes import Vanishing

_NOTHING = "false"


@dataclass(frozen=True)
class Voids:
    """What truncates and proven snapshots make void."""

    here: str
    """SQL over a change: whether a truncate or snapshot of this microbatch voids it."""
    before: str
    """SQL over a change: whether a truncate or snapshot of an earlier microbatch voids it."""
    rows: tuple[Vanishing, ...] = ()
    """Truncates and snapshots that remove rows of the target, newest last."""
    unread: Unread | None = None
    """What a snapshot that is not proven yet did not find, though all its reads in some lanes are known."""

    @property
    def are_none(self) -> bool:
        """Whether nothing is void."""
        return self.here == self.before == _any([_NOTHING]) and not self.rows and self.unread is None

    @property
    def of_rows(self) -> str:
        """SQL over a row or a change: whether it is gone."""
        return f"({self.here} OR {self.before})"

    @property
    def of_events(self) -> str:
        """SQL over an event: whether what it wrote is gone, so that no later event refers to it."""
        return f"{self.here} OR {self.before}" + (f" OR {self.unread.events}" if self.unread else "")


@dataclass(frozen=True)
class Unread:
    """What precedes a snapshot that is not proven yet, where a later event of the key is in a lane with all reads known.

    The row is not removed for that. But it did not make room for a create of its key after the snapshot, and a delete in the same
    transaction is not about it.
    """

    events: str
    """SQL over an event: whether it precedes the snapshot, or is in another lane."""
    rows: str
    """SQL over a row ``t`` of the target and a change ``s`` of its key: whether the row precedes the snapshot and the change does not."""


def find_voids(
    run: MicrobatchRun, truncates: Truncates, snapshots: Snapshots, tables: PhysicalTables, *, are_copies: bool = False
) -> Voids:
    """Return what the microbatch's truncates and snapshots, and earlier ones, make void.

    :param are_copies: whether events below an earlier position of their lane have been found to be copies of archived events: their offsets
        then prove nothing.
    """
    takers = [
        Vanishing(position, truncates.committed_micros.get(table), truncated(table, tables, truncates, alias="t."))
        for table, position in sorted(truncates.through.items(), key=lambda item: item[1])
    ]
    if snapshots.replacing and snapshots.replacing.cut:
        takers.append(Vanishing(snapshots.replacing.cut, None, not_found(snapshots.replacing, tables, "t.")))
    here = [truncated(table, tables, truncates) for table in sorted(truncates.through)] + [not_found(snapshots.replacing, tables)]
    earlier = Truncates(through=run.checkpoint.truncated_through)
    shields = [truncated(table, tables, earlier) for table in sorted(earlier.through)] + [not_found(snapshots.shield, tables)]
    if are_copies and snapshots.shield:
        shields.append(f"({before(snapshots.shield.cut)} AND {tables.rows_of(snapshots.shield.tables)})")
    return Voids(_any(here), _any(shields), tuple(sorted(takers, key=lambda taker: taker.position)), _unread(run, snapshots, tables))


def _unread(run: MicrobatchRun, snapshots: Snapshots, tables: PhysicalTables) -> Unread | None:
    # Includes snapshots without a last read so far: it may be in a lane without any event yet. A lane continues only after all its reads.
    known = (each for each in (*snapshots.pending, snapshots.newest) if each)
    newest = max((each for each in known if may_replace(each, run.flow.on_snapshot)), key=lambda each: each.position, default=None)
    # Partitions added since hold keys whose reads are in another lane.
    if newest is None or any(
        lane not in newest.last_offsets for lane in run.lanes if is_of_life(lane, newest.life) or newest.is_raised(lane)
    ):
        return None
    lanes = [lane for lane in newest.last_offsets if lane in newest.passed and lane != UNKNOWN_PARTITION]
    if not lanes:
        return None
    cut = replace(newest, cut=newest.position)
    listed = ", ".join(sorted(lanes))
    events, rows = not_found(cut, tables), not_found(cut, tables, "t.")
    return Unread(
        f"({events} OR NOT coalesce({PARTITION} IN ({listed}), false))",
        f"({rows} AND coalesce(s.{PARTITION} IN ({listed}), false) AND NOT {not_found(cut, tables, 's.')})",
    )


def truncated(table: str, tables: PhysicalTables, truncates: Truncates, alias: str = "") -> str:
    """Return the SQL that is true for what a truncate of a table removed."""
    return f"({before(truncates.through[table], alias)} AND {tables.rows_of([table], alias)})"


def not_found(snapshot: Snapshot | None, tables: PhysicalTables, alias: str = "") -> str:
    """Return the SQL that is true for what precedes a snapshot that removed what it did not find."""
    if snapshot is None or snapshot.cut is None:
        return _NOTHING
    return f"({stands_before(snapshot, alias)} AND {tables.rows_of(snapshot.tables, alias)})"


def _any(conditions: list[str]) -> str:
    return f"({' OR '.join(conditions)})"
