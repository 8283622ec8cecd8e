"""Create a target table by delta-rs: the same columns, comments and properties as Spark's, without a Spark job."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from airflow_cdc.pipeline.target.create_table import NewTable, columns_with_ours, created, declare, properties_of
from airflow_cdc.pipeline.target.open_natively import reach, without_answers
from airflow_cdc.pipeline.target.target_table import TargetTable


def create_natively(_: SparkSession, uri: str, new: NewTable) -> TargetTable:
    """Create an empty target table with the source's columns followed by ours; no name of theirs may need a column mapping.

    :param _: the session, which only parses the columns' types.
    :raises NotReached: where delta-rs is not used.
    """
    from deltalake import DeltaTable, Schema

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
