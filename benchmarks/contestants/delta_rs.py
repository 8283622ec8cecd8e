"""The rival on a single machine: DuckDB parses, delta-rs merges."""

from __future__ import annotations

from deltalake import DeltaTable

from benchmarks.contestants import duck
from benchmarks.contestants.contestant import Contestant
from benchmarks.shapes import KEY


class DeltaRs(Contestant):
    """No Spark at all; files with changed rows are rewritten."""

    name = "delta-rs"

    def merge(self) -> None:
        """Parse into memory, merge from there."""
        changes = duck.connect().sql(duck.latest(self.task)).to_arrow_table()
        values = {name: f"s.{name}" for name in self.task.names}
        merge = DeltaTable(self.table).merge(changes, f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t")
        merge = merge.when_matched_delete("s.op = 'd'").when_matched_update(values)
        merge.when_not_matched_insert(values, "s.op <> 'd'").execute()
