"""Doubt a snapshot: if a read of it was lost, it does not prove that a row it did not find is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import KIND, OFFSET, OP, PARTITION, POSITION, REJECT
from airflow_cdc.model.position.position import Position
from airflow_cdc.pipeline.decode.position_literal import position_literal
from airflow_cdc.pipeline.reconcile.rule import is_known_newer
from airflow_cdc.pipeline.spark import sql


@dataclass(frozen=True)
class Doubts:
    """Checks a microbatch for lost reads of a snapshot."""

    events: DataFrame
    latest: DataFrame
    """Row changes."""
    known: DataFrame | None
    """What may be newer than a read: the target's rows, or, where it keeps versions, the known events of live rows; None where there are
    none."""
    keys: Sequence[str]
    """Key columns of the target."""

    def of(self, position: Position, *, stays: str, has_other_lanes: bool) -> str | None:
        """Return why a snapshot with reads here proves nothing; None without a reason against it. Costs a small job each, and one for all.

        :param stays: SQL over a row ``k`` that is newer than a read: whether the snapshot does not affect it.
        :param has_other_lanes: whether a key may have been in another lane before.
        """
        if self._has_rejected_reads:
            return "a read beside those of the snapshot was rejected"
        if has_other_lanes and self._loses_reads(position, stays):
            return "a read of the snapshot lost against a row that another partition of the topic brought"
        return None

    @cached_property
    def _has_rejected_reads(self) -> bool:
        # A rejected read may have no position: it may be one of any snapshot's.
        return bool(self.events.filter(f"{KIND} = 'r' AND {REJECT} IS NOT NULL").head(1))

    def _loses_reads(self, position: Position, stays: str) -> bool:
        if self.known is None:
            return False
        keys = self.keys
        mine = self.latest.filter(F.expr(f"{OP} = 'r' AND {POSITION} = {position_literal(position)}"))
        named = [F.col(sql.name(key)) for key in keys]
        columns = (POSITION, OP, PARTITION, OFFSET)
        reads, rows = mine.select(*named, *columns).alias("s"), self.known.select(*named, *columns).alias("k")
        met = reads.join(rows, F.expr(f"{sql.same_key('s', 'k', keys)} AND NOT s.{PARTITION} <=> k.{PARTITION}"))
        return bool(met.filter(f"({is_known_newer('k', 's')}) AND NOT ({stays})").head(1))
