"""Compare a table's rows with those of a JDBC query, by key and values, after a cast to the table's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.errors import CdcError, ConfigurationError, SourceFailedError, first_line
from airflow_cdc.model.report.verification import TableVerification
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.upkeep.inspect_lake import with_json

_IN_SOURCE, _IN_TABLE = "__cdc_in_source", "__cdc_in_table"
_VALUES = "__cdc_values"
_THEIRS, _OURS = "__cdc_theirs", "__cdc_ours"
_SECRETS = ("password", "url")


def compare_source(
    spark: SparkSession,
    found: TableVerification,
    rows: DataFrame,
    keys: Sequence[str],
    options: Mapping[str, str],
    *,
    sample: int,
) -> TableVerification:
    """Return the differences between rows of a table and those of a JDBC query. The query runs once.

    :param found: the table's verification so far.
    :param rows: the source's columns only.
    :param keys: the table's; empty where it has no key: rows are then counted by all their values.
    """
    _refuse_options(found.flow, options)
    try:
        # A time without a zone must not take this machine's: Java would read it as local time.
        theirs = spark.read.format("jdbc").options(**{"preferTimestampNTZ": "true", **options}).load()
        return _compare(found, rows, theirs, keys, sample)
    except CdcError:
        raise
    except Exception as problem:  # noqa: BLE001 - what a driver throws is of no class of Spark's.
        raise SourceFailedError(
            f"Flow {found.flow}: the comparison with its source failed: {_without_secrets(problem, options)}",
            next_step="Check the query, the connection and the driver (Spark's setting spark.jars); then run again.",
        ) from None


def _refuse_options(flow: str, options: Mapping[str, str]) -> None:
    if not options.get("url", "").startswith("jdbc:") or ("query" in options) == ("dbtable" in options):
        raise ConfigurationError(
            f"Flow {flow}: its source is given by {sorted(options)}, expected a url that begins with jdbc: and either query or dbtable.",
            next_step="Give both.",
        )


def _without_secrets(problem: Exception, options: Mapping[str, str]) -> str:
    """Return the error's message without secrets."""
    lines = str(problem).strip().splitlines()
    # Py4J's first line names its own call; Java's message is in the second.
    text = lines[1].removeprefix(": ") if len(lines) > 1 and lines[0].startswith("An error occurred while calling") else first_line(problem)
    for name in _SECRETS:
        text = text.replace(options.get(name) or "\0", "…")
    return text


def _compare(found: TableVerification, rows: DataFrame, theirs: DataFrame, keys: Sequence[str], sample: int) -> TableVerification:
    # Oracle and others report names in upper case.
    spelled = {name.lower(): name for name in theirs.columns}
    names = [name for name in rows.columns if name.lower() in spelled]
    schema = tuple(f"{name}: absent in the source" for name in rows.columns if name not in names)
    schema += tuple(f"{name}: absent in the table" for name in theirs.columns if name.lower() not in {each.lower() for each in names})
    lacking = [key for key in keys if key not in names]
    if lacking or not names:
        raise ConfigurationError(
            f"Flow {found.flow}: the source's query gives {theirs.columns}, without the table's key columns {lacking or list(keys)}.",
            next_step="Let the query give them under their names; upper and lower case do not count.",
        )
    types = {name: kind for name, kind in rows.dtypes if name in names}
    by = list(keys) or names
    values = [name for name in names if name not in by]
    read = {name: _read(f"s.{sql.name(spelled[name.lower()])}", types[name]) for name in names}
    source = theirs.alias("s").selectExpr(
        *(f"{read[name]} AS {sql.name(name)}" for name in by),
        f"{_struct({name: (f's.{sql.name(spelled[name.lower()])}', read[name]) for name in values})} AS {_VALUES}",
        f"true AS {_IN_SOURCE}",
    )
    ours = with_json(rows).selectExpr(
        *map(sql.name, by), f"{_struct({name: (sql.name(name), sql.name(name)) for name in values})} AS {_VALUES}", f"false AS {_IN_SOURCE}"
    )
    grouped = _grouped(source.unionByName(ours), by).cache()
    try:
        return replace(_counted(found, grouped, by, values, has_key=bool(keys), sample=sample), schema=schema)
    finally:
        grouped.unpersist()


def _read(column: str, kind: str) -> str:
    """Return the SQL of a source's value in the table's type, NULL where it cannot be cast."""
    if kind == "variant":
        return f"to_json(try_parse_json(CAST({column} AS STRING)))"
    return f"try_cast({column} AS {kind})"


def _struct(columns: Mapping[str, tuple[str, str]]) -> str:
    """Return the SQL of values, each with a flag that it could be cast: a failed cast differs from NULL.

    :param columns: by name, the SQL of the original value and of the cast one.
    """
    members = [
        f"{sql.text(f'c{place}')}, named_struct('value', {read}, 'is_read', {raw} IS NULL OR {read} IS NOT NULL)"
        for place, (raw, read) in enumerate(columns.values())
    ]
    return f"named_struct({', '.join(members)})" if members else "named_struct('c', 0)"


def _grouped(both: DataFrame, by: Sequence[str]) -> DataFrame:
    # Not a join: a key that the query gives twice would multiply the rows.
    return both.groupBy(*map(sql.name, by)).agg(
        F.expr(f"count_if({_IN_SOURCE})").alias(_THEIRS),
        F.expr(f"count_if(NOT {_IN_SOURCE})").alias(_OURS),
        F.expr(f"any_value({_VALUES}) FILTER (WHERE {_IN_SOURCE})").alias("theirs"),
        F.expr(f"any_value({_VALUES}) FILTER (WHERE NOT {_IN_SOURCE})").alias("ours"),
    )


def _counted(
    found: TableVerification, grouped: DataFrame, by: Sequence[str], values: Sequence[str], *, has_key: bool, sample: int
) -> TableVerification:
    differs = f"{_THEIRS} > 0 AND {_OURS} > 0 AND NOT theirs <=> ours"
    # With a key each side has at most one row; surplus rows of the query are duplicates.
    theirs = f"least({_THEIRS}, 1)" if has_key else _THEIRS
    sums = {
        "rows": f"sum({_OURS})",
        "other_rows": f"sum({_THEIRS})",
        "missing": f"sum(greatest({theirs} - {_OURS}, 0))",
        "extra": f"sum(greatest({_OURS} - {theirs}, 0))",
        "different": f"count_if({differs})",
        "duplicates": f"sum({_THEIRS} - {theirs})",
    }
    of_columns = [
        f"count_if({_THEIRS} > 0 AND {_OURS} > 0 AND NOT theirs.c{place} <=> ours.c{place}) AS c{place}" for place in range(len(values))
    ]
    counts = grouped.selectExpr(*(f"{expression} AS `{name}`" for name, expression in sums.items()), *of_columns).collect()[0]
    side = f"CASE WHEN {_THEIRS} > {_OURS} AND ({_OURS} = 0 OR {not has_key}) THEN 'missing' WHEN {_OURS} > {_THEIRS} THEN 'extra'"
    side += f" WHEN {differs} THEN 'different' END"
    shown = grouped.selectExpr(f"{side} AS side", *(f"CAST({sql.name(key)} AS STRING) AS {sql.name(key)}" for key in by))
    keys = shown.filter("side IS NOT NULL").orderBy(*map(sql.name, by)).limit(sample).collect()
    numbers: dict[str, Any] = {name: int(counts[name] or 0) for name in sums}
    return replace(
        found,
        **numbers,
        columns=tuple(name for place, name in enumerate(values) if counts[f"c{place}"]),
        sample=tuple(row.asDict() for row in keys),
    )
