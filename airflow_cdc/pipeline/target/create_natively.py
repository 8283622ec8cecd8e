"""Create a target table by delta-rs: the same columns, comments and properties as Spark's, without a Spark job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from airflow_cdc.pipeline.spark.late_session import started
from airflow_cdc.pipeline.target.create_table import NewTable, columns_with_ours, created, declare, properties_of
from airflow_cdc.pipeline.target.delta_types import delta_field
from airflow_cdc.pipeline.target.open_natively import reach, without_answers
from airflow_cdc.pipeline.target.target_table import TargetTable
from airflow_cdc.pipeline.target.writable import why_not_written


def create_natively(spark: SparkSession, uri: str, new: NewTable) -> TargetTable:
    """Create an empty target table with the source's columns followed by ours; no name of theirs may need a column mapping.

    :param spark: parses types that :mod:`airflow_cdc.pipeline.target.delta_types` does not.
    :raises NotReached: where delta-rs is not used.
    """
    from deltalake import DeltaTable, Schema

    path, options = reach(uri)
    with without_answers(uri):
        # Spark and delta-rs spell a schema alike: both write it into Delta's log.
        schema = Schema.from_json(json.dumps({"type": "struct", "fields": _fields(spark, new)}))
        # Our own properties are no keys that delta-rs knows.
        DeltaTable.create(
            path, schema, mode="ignore", configuration=dict(properties_of(new)), storage_options=options, raise_if_key_not_exists=False
        )
    return created(uri, new)


def made_ready(uri: str, schema: Any, *, configuration: Mapping[str, str]) -> Any:
    """Return delta-rs's table with at least these columns; it is created where there is none, and columns that it lacks are added.

    :param schema: of Arrow.
    :param configuration: properties of a table that is created.
    :raises NotReached: where delta-rs is not used.
    :raises DeltaError: where the table cannot be read or written here.
    :raises OSError: when the store fails.
    """
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import DeltaError

    path, options = reach(uri)
    with without_answers(uri):
        if not DeltaTable.is_deltatable(path, options):
            DeltaTable.create(path, schema, mode="ignore", configuration=dict(configuration), storage_options=options)
        table = DeltaTable(path, storage_options=options)
        held = {field.name for field in table.schema().fields}
        if missing := [field for field in Schema.from_arrow(schema).fields if field.name not in held]:
            table.alter.add_columns(missing)
    if reason := why_not_written(table):
        raise DeltaError(reason)
    return table


def _fields(spark: SparkSession, new: NewTable) -> list[dict[str, Any]]:
    columns = columns_with_ours(new)
    try:
        return [delta_field(name, kind, new.comments.get(name)) for name, kind in columns.items()]
    except ValueError:
        started(spark)
        parsed = DataType.fromDDL(", ".join(declare(name, kind, new.comments.get(name)) for name, kind in columns.items()))
        assert isinstance(parsed, StructType)
        return [field.jsonValue() for field in parsed.fields]
