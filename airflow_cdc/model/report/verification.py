"""Verification: whether a flow's table equals another lake's table, or the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc.model.plain_json import JsonObject


@dataclass(frozen=True)
class Standing(JsonObject):
    """State of the compared table."""

    table: str
    """URI of the table."""
    version: int
    """Delta version that was compared, regardless of commits meanwhile."""
    microbatch: int
    """Number of the last microbatch in it."""
    applied_through: Mapping[str, str] = field(default_factory=dict)
    """Highest applied position by Kafka partition, ``-`` where the archive does not record it."""

    def __str__(self) -> str:
        positions = ", ".join(f"partition {name} through {position}" for name, position in self.applied_through.items())
        return f"version {self.version}, microbatch {self.microbatch}" + (f", {positions}" if positions else "")


@dataclass(frozen=True)
class TableVerification(JsonObject):
    """Comparison of a flow's table."""

    flow: str
    stands: Standing
    other_stands: Standing | None = None
    """As above, for the other lake's table; None for a source, which has no position."""
    rows: int = 0
    other_rows: int = 0
    checksum: str | None = None
    other_checksum: str | None = None
    """Sums over the rows in any order; only between lakes."""
    schema: tuple[str, ...] = ()
    """Text on columns that one side lacks, or that differ in type between lakes; the rows are compared without them."""
    columns: tuple[str, ...] = ()
    """Columns in which rows of one key differ."""
    missing: int = 0
    """Rows that only the source has."""
    extra: int = 0
    """Rows that only the table has."""
    different: int = 0
    """Rows of one key that differ."""
    duplicates: int = 0
    """Rows that the source's query returns more than once under a key of the table: the query does not match the table."""
    sample: tuple[dict[str, Any], ...] = ()
    """Sample of keys as text, each with ``side``: ``missing``, ``extra``, ``different``, ``overlapping`` or ``doubled``."""
    overlapping: int | None = None
    """Versions that overlap with another of their key, by position or by time; None where the history was not checked."""
    doubled: int | None = None
    """Keys that have several live rows in the table; None where a comparison with another side found none."""

    @property
    def equal(self) -> bool:
        """True when both sides hold the same."""
        counted = self.missing or self.extra or self.different or self.duplicates or self.overlapping or self.doubled
        return not (self.schema or self.columns or counted or self.rows != self.other_rows or self.checksum != self.other_checksum)

    def lines(self) -> Iterator[str]:
        """Yield the result as lines for people."""
        if self.overlapping is not None:
            result = f"{self.overlapping} OVERLAP" if self.overlapping else "none overlaps"
            yield f"{self.flow}: of {self.rows} versions {result}; the table stands at {self.stands}"
        elif self.doubled is not None:
            result = f"{self.doubled} KEYS HAVE SEVERAL ROWS" if self.doubled else "each key has one row"
            yield f"{self.flow}: {result} of {self.rows}; the table stands at {self.stands}"
        else:
            result = "equal" if self.equal else "DIFFERENT"
            yield f"{self.flow}: {result}: {self.rows} rows against {self.other_rows}; the table stands at {self.stands}"
        if self.other_stands:
            yield f"{self.flow}: the other table stands at {self.other_stands}"
        yield from (f"{self.flow}: column {text}" for text in self.schema)
        if self.checksum != self.other_checksum:
            yield f"{self.flow}: checksum {self.checksum} against {self.other_checksum}"
        if self.columns:
            yield f"{self.flow}: values differ in {', '.join(self.columns)}"
        counts = {"missing": self.missing, "extra": self.extra, "different": self.different, "duplicate in the source": self.duplicates}
        if any(counts.values()):
            yield f"{self.flow}: rows " + ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        if self.sample:
            yield f"{self.flow}: for example " + "; ".join(
                ", ".join(f"{name} {value}" for name, value in key.items()) for key in self.sample
            )

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain JSON values."""
        return {"equal": self.equal, **super().to_json()}


@dataclass(frozen=True)
class VerifyReport(JsonObject):
    """Result of one comparison run."""

    lake: str
    other: str | None = None
    """URI of the other lake; None for a comparison with a source or of the tables' own history."""
    tables: tuple[TableVerification, ...] = ()
    only_left: tuple[str, ...] = ()
    """Tables that only the lake has; not compared."""
    only_right: tuple[str, ...] = ()
    """Tables that only the other lake has; not compared."""
    error: dict[str, Any] | None = None
    """Set when the comparison did not finish."""

    @property
    def ok(self) -> bool:
        """True when the comparison finished, whatever its result."""
        return self.error is None

    @property
    def equal(self) -> bool:
        """True when at least one table was compared and all are equal."""
        return self.ok and bool(self.tables) and all(table.equal for table in self.tables)

    def lines(self) -> Iterator[str]:
        """Yield the report as lines for people, with commands for details."""
        for table in self.tables:
            yield from table.lines()
            if table.doubled:
                own = f'airflow-cdc rebuild "{table.flow}" --archive … --lake "{self.lake}"'
                yield f"{table.flow}: a key has one row at most; rebuild the table from its archive, and compare: {own}"
            if self.other and not table.equal:
                yield f'{table.flow}: see which rows: airflow-cdc diff "{self.lake}" "{self.other}" --table "{table.flow}"'
        for side, only in (("lake", self.only_left), ("other lake", self.only_right)):
            if only:
                yield f"only in the {side}, not compared: {', '.join(only)}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {"ok": self.ok, "equal": self.equal, **super().to_json()}
