"""Create a target table by delta-rs: the same columns, comments and properties as Spark's, without a Spark job."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.target.create_table import NewTable, columns_with_ours, create_target, created, declare, properties_of
from airflow_cdc.pipeline.target.open_natively import reach, without_answers
from airflow_cdc.pipeline.target.target_table import TargetTable


def create_natively(spark: SparkSession, uri: str, new: NewTable) -> TargetTable:
    """Create an empty target table with the source's columns followed by ours.

    :param spark: the session, which parses the columns' types, and creates the table where the folder holds files: it refuses most.
    :raises NotReached: where delta-rs is not used.
    """
    from deltalake import DeltaTable, Schema

    if _holds_something(uri):
        return create_target(spark, uri, new)
    columns = DataType.fromDDL(", ".join(declare(name, kind, new.comments.get(name)) for name, kind in columns_with_ours(new).items()))
    assert isinstance(columns, StructType)
    path, options = reach(uri)
    with without_answers(uri):
        # Spark and delta-rs spell a schema alike: both write it into Delta's log.
        schema = Schema.from_json(columns.json())
        # Our own properties are no keys that delta-rs knows.
        DeltaTable.create(
            path, schema, mode="ignore", configuration=dict(properties_of(new)), storage_options=options, raise_if_key_not_exists=False
        )
    return created(uri, new)


def _holds_something(uri: str) -> bool:
    fs, root = file_system(uri)
    try:
        return bool(fs.ls(root, detail=False))
    except FileNotFoundError:
        return False
