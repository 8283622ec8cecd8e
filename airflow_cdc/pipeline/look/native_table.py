"""A table of a lake, read by delta-rs and DuckDB in this process: in milliseconds, where Spark's start alone takes seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_cdc.model.columns import DELETED
from airflow_cdc.model.delta_rs_options import NotReached
from airflow_cdc.model.errors import first_line
from airflow_cdc.model.flow.scd_columns import ScdColumns
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.pipeline.look.spark_types import simple_type
from airflow_cdc.pipeline.look.values import rows_of
from airflow_cdc.pipeline.native.duckdb_sql import name as quote
from airflow_cdc.pipeline.target.open_natively import open_table as open_by_delta_rs
from airflow_cdc.pipeline.target.parquet_scan import query
from airflow_cdc.pipeline.target.table_properties import KEYS_PROPERTY, MODE_PROPERTY, is_ours, scd_columns_of

_READER_FEATURES = {
    *("columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck")
}
"""Delta's reader features that are known here. Any other may change what a file's rows mean."""


class NeedsSparkError(Exception):
    """Raised where only Spark can give an answer; its text is the reason. The commands then start Spark."""


@dataclass(frozen=True)
class NativeTable:
    """A Delta table as of when it was opened."""

    uri: str
    delta: Any
    """delta-rs's table."""
    fields: Sequence[Mapping[str, Any]]
    """Columns in the JSON of the table's schema, in its order."""
    keys: tuple[str, ...]
    mode: TableMode
    scd_columns: ScdColumns

    @cached_property
    def types(self) -> dict[str, str]:
        """Spark SQL types by column, as ``simpleString`` has them, in the table's order."""
        return {field["name"]: simple_type(field["type"]) for field in self.fields}

    @property
    def version(self) -> int:
        """Number of the last commit."""
        return int(self.delta.version())

    @property
    def source_columns(self) -> list[str]:
        """The columns that are not ours."""
        return [name for name in self.types if not is_ours(name, self.scd_columns)]

    @property
    def size(self) -> int:
        """Bytes of the live files."""
        return sum(self.file_sizes)

    @property
    def file_sizes(self) -> list[int]:
        """Bytes of each live file."""
        sizes: list[int] = self._files.column("size_bytes").to_pylist()
        return sizes

    @property
    def stored_rows(self) -> int | None:
        """Number of rows in the files, hidden ones included; None where the log does not have it."""
        known = self._files.column("num_records").to_pylist()
        return None if None in known else sum(known)

    @property
    def counts_by_log(self) -> bool:
        """Whether :meth:`count` reads no file: all rows are the source's, and the log has their number."""
        hides_rows = "deletionVectors" in (self.delta.protocol().reader_features or ())
        return not self._live and not hides_rows and self.stored_rows is not None

    def count(self, *, live: bool = True) -> int:
        """Return the number of rows.

        :param live: only those that the source has.
        :raises NeedsSparkError: where the rows are not read without Spark.
        """
        where, stored = self._live if live else "", self.stored_rows
        hides_rows = "deletionVectors" in (self.delta.protocol().reader_features or ())
        if not where and not hides_rows and stored is not None:
            return stored
        (found,) = self._query(f"SELECT count(*) AS rows FROM cdc{where}").column("rows").to_pylist() if len(self._files) else (0,)
        return int(found)

    def groups(self, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return the distinct values of columns, each with the number of rows behind them, the most first.

        :raises NeedsSparkError: where the rows are not read without Spark.
        """
        if not len(self._files):
            return []
        listed = ", ".join(map(quote, columns))
        found = self._query(f"SELECT {listed}, count(*) AS rows FROM cdc GROUP BY {listed} ORDER BY rows DESC, {listed}")
        return [tuple(row.values()) for row in found.to_pylist()]

    def doubled(self, sample: int) -> tuple[int, list[dict[str, str]]]:
        """Return the number of keys that have several rows of those that the source has, and some of these keys as text.

        :param sample: maximum number of keys to return.
        :raises NeedsSparkError: where the rows are not read without Spark.
        """
        if not len(self._files):
            return 0, []
        keys = ", ".join(map(quote, self.keys))
        texts = ", ".join(f"CAST({quote(key)} AS VARCHAR) AS {quote(key)}" for key in self.keys)
        several = f"SELECT {keys} FROM cdc{self._live} GROUP BY {keys} HAVING count(*) > 1"
        found = self._query(f"SELECT {texts}, count(*) OVER () AS __cdc_keys FROM ({several}) ORDER BY {keys} LIMIT {sample}").to_pylist()
        counts = [int(row.pop("__cdc_keys")) for row in found]
        return (counts[0] if counts else 0), found

    def matching(self, where: str) -> int:
        """Return the number of rows, past and deleted ones included, for which SQL is true.

        :raises NeedsSparkError: where the rows are not read without Spark.
        """
        if not len(self._files):
            return 0
        (found,) = self._query(f"SELECT count(*) AS rows FROM cdc WHERE {where}").column("rows").to_pylist()
        return int(found)

    @property
    def live(self) -> str:
        """SQL of the relation of the rows that the source has, for :meth:`ask`."""
        return f"(SELECT * FROM cdc{self._live})"

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement over :attr:`live`; none where the table has no file.

        :raises NeedsSparkError: where the rows are not read without Spark.
        """
        found = self._query(statement).to_pylist() if len(self._files) else []
        return [tuple(row.values()) for row in found]

    def rows(
        self,
        columns: Sequence[str],
        *,
        order: Sequence[str] = (),
        limit: int | None = None,
        offset: int = 0,
        where: str = "",
        history: bool = False,
    ) -> list[dict[str, Any]]:
        """Return rows as Spark collects them, by column name.

        :param order: SQL to sort by, NULL first; empty: any order.
        :param limit: maximum number of rows; None: all.
        :param offset: number of rows to leave out before them.
        :param where: SQL that is true for the rows to return; with ``history`` only.
        :param history: whether to include past versions and deleted rows, and to have structs as dictionaries.
        :param where: SQL that is true for the rows to return; empty: all.
        :raises NeedsSparkError: where the rows are not read without Spark.
        """
        if not columns:
            raise NeedsSparkError(f"{self.uri} has no column to show")
        if not len(self._files):
            return []
        by = ", ".join(f"{each} ASC NULLS FIRST" for each in order)
        among = f"(SELECT * FROM cdc{'' if history else self._live})" if where else f"cdc{'' if history else self._live}"
        statement = f"SELECT {', '.join(map(quote, columns))} FROM {among}{f' WHERE {where}' if where else ''}"
        statement += f" ORDER BY {by}" if by else ""
        found = self._query(statement if limit is None else f"{statement} LIMIT {limit} OFFSET {offset}")
        try:
            return rows_of(found, structs_by_name=history)
        except (ValueError, OverflowError, NotImplementedError) as error:
            raise NeedsSparkError(f"a value in {self.uri} has no form in Python ({first_line(error)})") from error

    @cached_property
    def _files(self) -> Any:
        return self.delta.get_add_actions(flatten=True)

    @property
    def _live(self) -> str:
        live = {TableMode.FLAGGED: f"NOT {quote(DELETED)}", TableMode.VERSIONS: quote(self.scd_columns.is_current)}
        return f" WHERE {live[self.mode]}" if self.mode in live else ""

    def _query(self, statement: str) -> Any:
        import duckdb
        from deltalake.exceptions import DeltaError

        if kinds := [name for name, kind in self.types.items() if "variant" in kind]:
            raise NeedsSparkError(f"only Spark reads the VARIANT columns {', '.join(kinds)} of {self.uri}")
        try:
            return query(self.uri, self.delta, self.fields, statement)
        except (duckdb.Error, DeltaError, OSError, ValueError) as error:
            raise NeedsSparkError(f"{self.uri} is not read without it ({first_line(error)})") from error


def open_table(uri: str) -> NativeTable | None:
    """Return the table at a URI; None where there is none.

    :raises NeedsSparkError: where delta-rs does not reach or know the table.
    """
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        table = open_by_delta_rs(uri)
        if unknown := set(table.protocol().reader_features or ()) - _READER_FEATURES:
            raise NeedsSparkError(f"{uri} has the feature {', '.join(sorted(unknown))}")
        fields = json.loads(table.schema().to_json())["fields"]
    except TableNotFoundError:
        return None
    except NotReached as reason:
        raise NeedsSparkError(f"{uri}: {reason}") from reason
    except (DeltaError, OSError, ValueError) as error:
        raise NeedsSparkError(f"delta-rs does not read {uri} ({first_line(error)})") from error
    properties: Mapping[str, str] = dict(table.metadata().configuration)
    return NativeTable(
        uri=uri,
        delta=table,
        fields=fields,
        keys=tuple(json.loads(properties.get(KEYS_PROPERTY, "[]"))),
        mode=TableMode(properties.get(MODE_PROPERTY, TableMode.CURRENT)),
        scd_columns=scd_columns_of(properties),
    )
