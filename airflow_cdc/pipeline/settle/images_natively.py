"""Images read without Spark (DuckDB): types and observations of plain values, equal to those of Spark's two jobs.

DuckDB prints a number with a point or an exponent anew. Whether a fraction has more digits than a double holds is therefore looked up in
the raw lines. What is not certain (objects, arrays, exponents, integers beyond 38 digits, text that is nearly base64) is left to Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_cdc.model.archive.survey import RecordLayout
from airflow_cdc.model.state.microbatch import Microbatch
from airflow_cdc.pipeline.decode.types.infer_types import MOST_WHOLE, common_type
from airflow_cdc.pipeline.decode.types.native_readings import text as text_of
from airflow_cdc.pipeline.decode.types.seen_values import SeenValues
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb, may_read, rows_by_name, threads_for, with_line_like
from airflow_cdc.pipeline.native.duckdb_sql import name, struct, text
from airflow_cdc.pipeline.native.fetched_files import is_fetched
from airflow_cdc.pipeline.native.free_memory import free_memory
from airflow_cdc.pipeline.native.loose_json import with_loose_json
from airflow_cdc.pipeline.native.record_lines import IS_OF_LAYOUT, RecordLines, UnpairedError, fetch
from airflow_cdc.pipeline.settle.images import Images
from airflow_cdc.pipeline.spark.storage import is_local
from airflow_cdc.pipeline.survey.survey_natively import MOST_TEXT_BYTES, is_of_lines

_FREE_IF_UNKNOWN = 1024**3
_OF_FREE = 4
"""Of the memory that is free, what is fetched of a store's files takes one part in so many at most."""
_MOST_WHOLE = 2**63 - 1
_DIGITS = 17
_LONG = "|".join(f"[0-9]{{{left},}}[.][0-9]{{{_DIGITS + 1 - left},}}" for left in range(1, _DIGITS + 1))
_UNCERTAIN_NUMBER = rf"[:\[,]\s*-?({_LONG}|[0-9.]+[eE])"
"""A number with more digits than a double holds, or with an exponent."""
_END = r"(\r\n|[\n\r\x{85}\x{2028}\x{2029}])?$"
"""Java's end of a text, before which one line may end."""
_BASE64 = "[A-Za-z0-9+/]*={0,2}"
_NOT_MINIMAL = "(A[A-H]|/[4-9+/])[A-Za-z0-9+/]"
"""Begin of a number in base64 that has more bytes than it needs."""
_SHORT = 24
_SHOWN = "left(CASE WHEN kind = 'fraction' THEN regexp_replace(leaf, '[.]?0+$', '') ELSE leaf END, 60)"
"""Spark's parser drops the zeros behind a fraction."""
_STATEMENTS = {
    "some_part_of_1000": "whole % 1000 <> 0",
    "some_part_of_1000000": "whole % 1000000 <> 0",
    "some_part_of_1000000000": "whole % 1000000000 <> 0",
    "some_no_numeral": rf"NOT regexp_matches(text, '^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?{_END}')",
    "some_no_point": "NOT regexp_matches(text, '[.eE]')",
    "some_no_base64": f"NOT (length(text) % 4 = 0 AND regexp_matches(text, '^{_BASE64}{_END}'))",
    "some_no_hex": f"NOT regexp_matches(text, '^[0-9a-fA-F]*{_END}')",
    "some_padded": "text LIKE '%='",
    "some_mixed": "regexp_matches(text, '[a-z][A-Z0-9]|[A-Z0-9]{2}[a-z]|[0-9][A-Z]')",
    "some_not_minimal": f"length(text) <= {_SHORT} AND regexp_matches(text, '^{_NOT_MINIMAL}') AND regexp_full_match(text, '{_BASE64}')",
    "some_no_instant": r"NOT regexp_matches(text, '^[0-9]{4,}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?"
    rf"(Z|[+-][0-9]{{2}}:[0-9]{{2}}){_END}')",
}
_KIND = """CASE WHEN leaf IN ('true', 'false') THEN 'boolean' WHEN leaf[1] = '"' THEN 'text'
    WHEN regexp_full_match(leaf, '-?[0-9]{1,38}') THEN 'whole' WHEN regexp_full_match(leaf, '-?[0-9]+[.][0-9]+') THEN 'fraction'
    ELSE 'other' END"""
_KINDS = ("boolean", "text", "whole", "fraction", "other")
_WHOLE = f"""CASE WHEN kind = 'whole' OR (kind = 'fraction' AND regexp_full_match(leaf, '.*[.]0+'))
    THEN coalesce(TRY_CAST(split_part(leaf, '.', 1) AS BIGINT), {_MOST_WHOLE}) END"""


def may_look_natively(microbatch: Microbatch) -> bool:
    """Return whether a microbatch's images may be read without Spark: JSON lines of one layout, within reach."""
    return (
        may_read()
        and not microbatch.parts
        and microbatch.text_size <= MOST_TEXT_BYTES
        and is_fetched(microbatch.archive)
        and (is_local(microbatch.archive) or microbatch.size <= (free_memory() or _FREE_IF_UNKNOWN) // _OF_FREE)
        and all(map(is_of_lines, microbatch.files))
        and len({shape.layout for shape in microbatch.shapes}) == 1
        and len({file.keys_path is None for file in microbatch.files}) == 1
    )


@dataclass(frozen=True)
class NativeImages:
    """Images that DuckDB reads where it surely sees what Spark sees, else those of Spark."""

    microbatch: Microbatch
    topic: str
    members: Sequence[str]
    """Names of the images in a record's value."""
    columns: Collection[str]
    """All columns that will be asked for."""
    or_else: Images

    def types(self, columns: Collection[str]) -> dict[str, str]:
        """Return a Spark SQL type for each of the columns with a value."""
        if self._seen is None:
            return self.or_else.types(columns)
        return {column: common_type(self._seen[column].kinds_of_type) for column in columns if column in self._seen}

    def values(self, columns: Collection[str]) -> dict[str, SeenValues]:
        """Return the observations of each of the columns with a value."""
        if self._seen is None:
            return self.or_else.values(columns)
        return {column: self._seen[column].values for column in columns if column in self._seen}

    @cached_property
    def _seen(self) -> Mapping[str, _Seen] | None:
        """By column; None where that is not certain."""
        import duckdb

        if len({column.lower() for column in self.columns}) < len(self.columns):
            # To DuckDB the members of a struct are one where they differ in case alone.
            return None
        try:
            files = fetch(self.microbatch.archive, self.microbatch.files)
            are_values = self.microbatch.shapes[0].layout is RecordLayout.VALUE
            lines = RecordLines(files, self.microbatch.files, are_values=are_values)
            if with_loose_json(files):
                return None
            with connect_duckdb(threads=threads_for(self.microbatch.text_size)) as connection:
                connection.register_filesystem(files)
                rows = rows_by_name(connection.execute(self._statement(lines)))
                fractions = any("fraction" in row["kinds"] for row in rows)
                if any(row["is_uncertain"] for row in rows) or (fractions and with_line_like(connection, files.uris, _UNCERTAIN_NUMBER)):
                    return None
        except (duckdb.Error, OSError, UnpairedError):
            # Whatever it is, Spark names it.
            return None
        return {row.pop("name"): _Seen.of(row) for row in rows}

    def _statement(self, lines: RecordLines) -> str:
        image = dict.fromkeys(self.columns, "JSON")
        read = lines.read(dict.fromkeys(self.members, struct(image)), image)
        images = ["key", *(f"value.{name(member)}" for member in self.members)]
        leaves = ", ".join(
            f"{{'name': {text(column)}, 'leaf': CAST({each}.{name(column)} AS VARCHAR)}}" for each in images for column in self.columns
        )
        kinds = ", ".join(f"CASE WHEN bool_or(kind = {text(kind)}) THEN {text(kind)} END" for kind in _KINDS)
        flags = ", ".join(f"coalesce(bool_or({condition}), false) AS {flag}" for flag, condition in _STATEMENTS.items())
        nearly = f"length(text) <= {_SHORT} AND regexp_matches(text, '^{_NOT_MINIMAL}') AND regexp_full_match(text, '[A-Za-z0-9+/=\\s]*')"
        return f"""
WITH members AS (
  SELECT unnest([{leaves}], recursive := true), {IS_OF_LAYOUT} FROM ({read}) WHERE topic IS NULL OR topic = {text(self.topic)}
), kinds AS (
  SELECT *, {_KIND} AS kind FROM members WHERE leaf IS NOT NULL AND leaf <> 'null'
), observed AS (
  SELECT *, {_WHOLE} AS whole, CASE WHEN kind = 'text' THEN {text_of("leaf")} END AS text FROM kinds
)
SELECT name, list_filter([{kinds}], lambda each: each IS NOT NULL) AS kinds,
  coalesce(bool_or(kind = 'whole' AND TRY_CAST(leaf AS BIGINT) IS NULL), false) AS is_beyond,
  coalesce(max(abs(CAST(whole AS HUGEINT))), 0) AS greatest, count(*) AS count, coalesce(min(whole), 0) AS least,
  coalesce(max(whole), 0) AS most, coalesce(max(length(text)), 0) AS longest,
  [min({_SHOWN}), any_value({_SHOWN}), max({_SHOWN})] AS examples, {flags},
  coalesce(bool_or(NOT {IS_OF_LAYOUT} OR kind = 'other' OR regexp_full_match(leaf, '-0[.]0*') OR (kind = 'text' AND text IS NULL)
    OR ({nearly} AND NOT (length(text) % 4 = 0 AND regexp_full_match(text, '{_BASE64}')))), false) AS is_uncertain
FROM observed GROUP BY name"""


@dataclass(frozen=True)
class _Seen:
    """What was seen of a column."""

    values: SeenValues
    kinds_of_type: set[str]
    """As :func:`airflow_cdc.pipeline.decode.types.infer_types.common_type` takes them."""

    @classmethod
    def of(cls, row: dict[str, Any]) -> _Seen:
        """Make it of a row of the query."""
        kinds, is_beyond, _ = frozenset(row.pop("kinds")), row.pop("is_beyond"), row.pop("is_uncertain")
        examples, greatest = tuple(dict.fromkeys(row.pop("examples"))), int(row.pop("greatest"))
        whole = "DECIMAL" if is_beyond else "LONG" if greatest > MOST_WHOLE else "BIGINT"
        of_type = {"boolean": "BOOLEAN", "text": "STRING", "whole": whole, "fraction": "DOUBLE"}
        return cls(SeenValues(kinds, greatest, examples=examples, **row), {of_type[kind] for kind in kinds})
