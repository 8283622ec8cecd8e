"""Verify a flow's table: that no key has several rows, against the same table in another lake by count and checksum, or against a query
of its source.

Two lakes cost one pass over each table. To find the differing rows, see :mod:`airflow_cdc.pipeline.upkeep.compare_tables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.columns import POSITION
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.report.verification import Standing, TableVerification, VerifyReport
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.pipeline.look.doubled_keys import has_one_row_a_key, report_on_keys
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.spark.uris import spark_uri
from airflow_cdc.pipeline.target.find_commit import newest_report
from airflow_cdc.pipeline.target.overlapping_versions import overlapping_versions
from airflow_cdc.pipeline.target.target_table import latest_version, read_target
from airflow_cdc.pipeline.upkeep.compare_source import compare_source
from airflow_cdc.pipeline.upkeep.compare_tables import schema_differences, tables_in
from airflow_cdc.pipeline.upkeep.inspect_lake import source_rows, with_json

_ROWS = "__cdc_rows"
_WHOLE = "__cdc_whole"
_COLUMN = "__cdc_column_"


def verify_lakes(spark: SparkSession, lake: str, other: str, globs: Iterable[str] = ()) -> VerifyReport:
    """Compare the same-named tables of two lakes by their number of rows and a checksum of the source's columns."""
    patterns = tuple(globs)
    left, right = (tables_in(spark, each, patterns) for each in (lake, other))
    both = [flow for flow in left if flow in right]
    return VerifyReport(
        lake,
        other,
        tuple(_verify(spark, lake, other, flow) for flow in both),
        tuple(flow for flow in left if flow not in both),
        tuple(flow for flow in right if flow not in both),
    )


def verify_source(spark: SparkSession, lake: str, flow: str, options: Mapping[str, str], sample: int = 20) -> VerifyReport:
    """Compare a flow's table with the result of a JDBC query, by key and values.

    :param options: of Spark's JDBC reader: ``url``, ``query`` or ``dbtable``, ``user``, ``password``, ``driver`` and others.
    :param sample: maximum number of differing keys to return.
    :raises ConfigurationError: when the lake has no such table, or the options or the query's columns do not fit.
    :raises SourceFailedError: when the database does not answer or refuses the query.
    """
    stands = _standing(spark, lake, flow)
    rows, keys = source_rows(spark, lake, flow, version=stands.version)
    table = TableVerification(flow, stands, doubled=_count_doubled(spark, stands, rows, keys))
    return VerifyReport(lake, tables=(compare_source(spark, table, rows, keys, options, sample=sample),))


def verify_keys(spark: SparkSession, lake: str, globs: Iterable[str] = (), sample: int = 20) -> VerifyReport:
    """Check that no key has several rows, of those that the source has: tables of earlier versions may have such keys.

    :param sample: maximum number of keys to return per table.
    :raises ConfigurationError: when none of the lake's tables that match the globs has a row for each key.
    """
    tables = [found for flow in tables_in(spark, lake, tuple(globs)) if (found := _keys(spark, lake, flow, sample))]
    return report_on_keys(lake, tables)


def _keys(spark: SparkSession, lake: str, flow: str, sample: int) -> TableVerification | None:
    stands = _standing(spark, lake, flow)
    target = read_target(spark, spark_uri(stands.table))
    if target is None or not has_one_row_a_key(target.mode, target.keys):
        return None
    rows, keys = source_rows(spark, lake, flow, version=stands.version)
    held, doubled = rows.count(), _doubled(rows, keys)
    key_texts = [f"CAST({sql.name(key)} AS STRING) AS {sql.name(key)}" for key in keys]
    found = doubled.orderBy(*map(sql.name, keys)).selectExpr("'doubled' AS side", *key_texts).limit(sample).collect()
    count = doubled.count() if found else 0
    return TableVerification(flow, stands, rows=held, other_rows=held, doubled=count, sample=tuple(row.asDict() for row in found))


def _count_doubled(spark: SparkSession, stands: Standing, rows: DataFrame, keys: Sequence[str]) -> int | None:
    """Return the number of keys that have several rows; None where there are none, or a key may have several."""
    target = read_target(spark, spark_uri(stands.table))
    return _doubled(rows, keys).count() or None if target and has_one_row_a_key(target.mode, keys) else None


def _doubled(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the keys that have several rows."""
    return rows.groupBy(*map(sql.name, keys)).agg(F.count("*").alias(_ROWS)).filter(f"{_ROWS} > 1").drop(_ROWS)


def verify_history(spark: SparkSession, lake: str, globs: Iterable[str] = (), sample: int = 20) -> VerifyReport:
    """Check tables that keep versions: a key's versions must not overlap, by position or by time, and at most one is current.

    :param sample: maximum number of keys to return per table.
    :raises ConfigurationError: when none of the lake's tables that match the globs keeps versions.
    """
    tables = [found for flow in tables_in(spark, lake, tuple(globs)) if (found := _history(spark, lake, flow, sample))]
    if not tables:
        raise ConfigurationError(
            f"Lake {lake} has no table of these names that keeps every version.",
            next_step="Name flows with stored_as_scd_type: 2, or none.",
        )
    return VerifyReport(lake, tables=tuple(tables))


def _history(spark: SparkSession, lake: str, flow: str, sample: int) -> TableVerification | None:
    stands = _standing(spark, lake, flow)
    target = read_target(spark, spark_uri(stands.table))
    if target is None or target.mode is not TableMode.VERSIONS:
        return None
    rows, keys = source_rows(spark, lake, flow, history=True, version=stands.version)
    wrong = overlapping_versions(target.with_default_names(rows), keys)
    held = rows.count()
    key_texts = [f"CAST({sql.name(key)} AS STRING) AS {sql.name(key)}" for key in keys]
    places = [f"CAST({POSITION}.commit AS STRING) AS commit", "'overlapping' AS side"]
    found = wrong.selectExpr(*key_texts, *places).limit(sample).collect()
    count = wrong.count() if found else 0
    return TableVerification(flow, stands, rows=held, other_rows=held, overlapping=count, sample=tuple(row.asDict() for row in found))


def _verify(spark: SparkSession, lake: str, other: str, flow: str) -> TableVerification:
    left, right = _standing(spark, lake, flow), _standing(spark, other, flow)
    left_rows, keys = source_rows(spark, lake, flow, version=left.version)
    right_rows, other_keys = source_rows(spark, other, flow, version=right.version)
    schema = schema_differences(left_rows, right_rows)
    names = sorted(name for name, kind in left_rows.dtypes if (name, kind) in right_rows.dtypes)
    on = [key for key in keys if key in other_keys and key in names]
    ours, theirs = (_checksums(rows, on, names) for rows in (left_rows, right_rows))
    return TableVerification(
        flow,
        left,
        right,
        rows=int(ours[_ROWS] or 0),
        other_rows=int(theirs[_ROWS] or 0),
        checksum=ours[_WHOLE],
        other_checksum=theirs[_WHOLE],
        schema=schema,
        columns=tuple(name for place, name in enumerate(names) if ours[f"{_COLUMN}{place}"] != theirs[f"{_COLUMN}{place}"]),
        doubled=_count_doubled(spark, left, left_rows, keys),
    )


def _checksums(rows: DataFrame, keys: Sequence[str], names: Sequence[str]) -> dict[str, str | None]:
    """Return as text: the number of rows, a checksum over all columns, and one per column with the key."""
    of_columns = [f"{_sum([*(key for key in keys if key != name), name])} AS {_COLUMN}{place}" for place, name in enumerate(names)]
    found = with_json(rows).selectExpr(f"CAST(count(1) AS STRING) AS {_ROWS}", f"{_sum(names)} AS {_WHOLE}", *of_columns).collect()
    return {name: value or "0" for name, value in found[0].asDict().items()}


def _sum(names: Sequence[str]) -> str:
    # Equal rows must count as often as they occur, so no XOR. A NULL leaves Spark's hash unchanged, so its presence is hashed too.
    parts = ", ".join(f"{sql.name(name)}, isnull({sql.name(name)})" for name in names) or "0"
    return f"CAST(sum(CAST(xxhash64({parts}) AS DECIMAL(38,0))) AS STRING)"


def _standing(spark: SparkSession, lake: str, flow: str) -> Standing:
    """Return the table's version and last applied positions; includes a merge whose commit marker is not written yet."""
    fs, root = file_system(lake)
    checkpoint = FlowState(fs, root, flow).checkpoint()
    table = checkpoint.table_in(lake)
    if not table:
        raise ConfigurationError(
            f"Lake {lake} has no flow {flow} that has applied anything.",
            next_step="Check the flow's name and the lake's root with `airflow-cdc tables --lake …`.",
        )
    uri = spark_uri(table)
    version = latest_version(spark, uri)
    newest = newest_report(spark, uri, flow)
    applied = dict(checkpoint.applied_through)
    if newest and newest.microbatch > checkpoint.number:
        for partition, position in newest.applied_through.items():
            applied[partition] = max(position, applied.get(partition, position))
    number = max(checkpoint.number, newest.microbatch if newest else 0)
    return Standing(table, version, number, {name: str(position) for name, position in sorted(applied.items())})
