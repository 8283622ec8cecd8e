"""Document columns: typed columns beside ``document``, extracted from it wherever a row's document is known.

A row's columns always match its own document. A change that keeps the target's document keeps them too. A row whose document is not known
has NULL in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.columns import MICROBATCH
from airflow_cdc.model.flow.document_columns import DocumentColumn, is_index, names_defined
from airflow_cdc.pipeline.decode.mongodb import DOCUMENT
from airflow_cdc.pipeline.decode.types.extended_json import value_of
from airflow_cdc.pipeline.spark import sql

_FLAT = "__cdc_flat"
_CORRUPT = "__cdc_corrupt"


def with_document_columns(rows: DataFrame, columns: Mapping[str, DocumentColumn]) -> DataFrame:
    """Return rows with their document columns; each document is parsed once, however many columns there are."""
    if not columns or DOCUMENT not in rows.columns:
        return rows
    flat = rows.withColumn(_FLAT, F.expr(_flattened(columns)))
    return flat.withColumns({name: F.col(f"{_FLAT}.{sql.name(name)}") for name in columns}).drop(_FLAT)


def fill_document_columns(spark: SparkSession, uri: str, columns: Mapping[str, DocumentColumn], known: str) -> None:
    """Set the document columns of all rows of a table; columns no longer defined become NULL. Idempotent.

    :param known: the definition by which the columns were last filled.
    """
    values = {sql.name(name): "NULL" for name in names_defined(known)}
    values |= {sql.name(name): _column(column) for name, column in columns.items()}
    spark.sql(f"UPDATE {sql.delta(uri)} SET {sql.assign(values)}")


def count_misfits(spark: SparkSession, uri: str, columns: Mapping[str, DocumentColumn], *, microbatch: int | None) -> dict[str, int]:
    """Return by column the number of rows where the column is NULL although the document has a value.

    :param microbatch: restricts the count to its rows; None counts all.
    """
    if not columns:
        return {}
    rows = spark.sql(f"SELECT * FROM {sql.delta(uri)} WHERE {DOCUMENT} IS NOT NULL")
    # A column defined after the microbatch was merged is not in the table yet.
    columns = {name: column for name, column in columns.items() if name in rows.columns}
    if not columns:
        return {}
    rows = rows if microbatch is None else rows.filter(f"{MICROBATCH} = {microbatch}")
    empty = F.expr(" OR ".join(f"{sql.name(name)} IS NULL" for name in columns))
    parsed = rows.filter(empty).select(*map(sql.name, columns), F.expr(_has_values(columns)).alias(_FLAT))
    counted = [
        F.count_if(F.col(sql.name(name)).isNull() & F.col(f"{_FLAT}.{sql.name(name)}")).alias(str(at)) for at, name in enumerate(columns)
    ]
    (counts,) = parsed.agg(*counted).collect()
    return {name: int(count) for name, count in zip(columns, counts, strict=True) if count}


def _flattened(columns: Mapping[str, DocumentColumn]) -> str:
    """Return the SQL of a struct of the values by column."""
    parser = _Parser(columns.values())
    return parser.parsing(sql.struct({name: value_of(parser.text(column), column.sql_type) for name, column in columns.items()}))


def _column(column: DocumentColumn) -> str:
    parser = _Parser([column])
    return parser.parsing(value_of(parser.text(column), column.sql_type))


def _has_values(columns: Mapping[str, DocumentColumn]) -> str:
    """Return the SQL of a struct by column: whether the document has a value at its path. All true for text that is not a JSON object."""
    parser = _Parser(columns.values())
    corrupt = f"from_json({DOCUMENT}, '{_CORRUPT} STRING', map('columnNameOfCorruptRecord', '{_CORRUPT}'))"
    unread = f"({corrupt} IS NULL OR {corrupt}.{_CORRUPT} IS NOT NULL)"
    return parser.parsing(sql.struct({name: f"({parser.text(column)} IS NOT NULL OR {unread})" for name, column in columns.items()}))


@dataclass
class _Schema:
    """A tree of the members to parse. ``leaf``: the type of this node when none of its members are requested."""

    leaf: str = ""
    members: dict[str, _Schema] = field(default_factory=dict)

    def takes(self, names: Sequence[str], leaf: str) -> bool:
        """Return whether a path can be parsed with the others: from_json returns a member as text or as its members, not both."""
        if not names:
            return not self.members and self.leaf in ("", leaf)
        if self.leaf:
            return False
        name, *rest = names
        # Spark compares field names without case.
        alike = next((known for known in self.members if known.lower() == name.lower()), None)
        return alike is None or (alike == name and self.members[name].takes(rest, leaf))

    def add(self, names: Sequence[str], leaf: str) -> None:
        if names:
            self.members.setdefault(names[0], _Schema()).add(names[1:], leaf)
        else:
            self.leaf = leaf

    def ddl(self) -> str:
        inner = ", ".join(f"{sql.name(name)}: {member.ddl()}" for name, member in self.members.items())
        return self.leaf or f"STRUCT<{inner}>"


class _Parser:
    """SQL that parses a document for some columns: once for all columns whose paths are compatible."""

    def __init__(self, columns: Iterable[DocumentColumn]) -> None:
        self._schemas: list[_Schema] = []
        for column in columns:
            names, rest = _to_index(column.steps)
            place = self._place(names, rest)
            if place is None:
                place = len(self._schemas)
                self._schemas.append(_Schema())
            self._schemas[place].add(names, _leaf(rest))

    def _place(self, names: Sequence[str], rest: Sequence[str]) -> int | None:
        return next((at for at, schema in enumerate(self._schemas) if schema.takes(names, _leaf(rest))), None)

    def text(self, column: DocumentColumn) -> str:
        """Return the SQL of the text at a column's path; valid within :meth:`parsing` only."""
        names, rest = _to_index(column.steps)
        return _at(f"document{self._place(names, rest)}", names, rest)

    def parsing(self, body: str) -> str:
        """Return ``body`` with the parsed document bound in it."""
        for at, schema in enumerate(self._schemas):
            body = sql.let(f"document{at}", f"from_json({DOCUMENT}, {sql.text(schema.ddl())})", body)
        return body


def _to_index(steps: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return a path's names before its first index, and the rest from that index on."""
    end = next((at for at, step in enumerate(steps) if is_index(step)), len(steps))
    return steps[:end], steps[end:]


def _leaf(rest: Sequence[str]) -> str:
    # from_json drops a whole array of structs if one element is not an object.
    return "ARRAY<STRING>" if rest else "STRING"


def _at(parsed: str, names: Sequence[str], rest: Sequence[str]) -> str:
    """Return the SQL of the text at a path.

    :param parsed: SQL of the parsed value.
    :param rest: the path from the next index on.
    """
    value = parsed + "".join(f".{sql.name(name)}" for name in names)
    if not rest:
        return value
    index, *after = rest
    element = f"get({value}, {int(index)})"
    if not after:
        return element
    names, rest = _to_index(after)
    schema = _Schema()
    schema.add(names, _leaf(rest))
    # from_json reads an array as its first element where an object is requested.
    same_kind = f"if(startswith({element}, '{'{' if names else '['}'), {element}, NULL)"
    return _at(f"from_json({same_kind}, {sql.text(schema.ddl())})", names, rest)
