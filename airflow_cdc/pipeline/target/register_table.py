"""Register a target table by name in Spark's catalog."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import CatalogTableError, SparkFailedError, first_line
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.uris import spark_uri
from airflow_cdc.pipeline.target.target_table import read_target

_NO_SUCH_NAME = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND")


def register_table(spark: SparkSession, flow: CdcFlow, uri: str) -> None:
    """Register a flow's table in the catalog once it exists; a name that already refers to it stays as it is.

    :param flow: with a ``catalog_table``.
    :param uri: of the target table.
    :raises CatalogTableError: when the name refers to something else, or the catalog refuses it.
    :raises SparkFailedError: when the catalog does not answer.
    """
    uri, name = spark_uri(uri), sql.path(flow.catalog_table)
    try:
        if read_target(spark, uri) is None:
            return
        there = _location(spark, name)
        if there is None:
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS {sql.path(flow.catalog_table[:-1])}")
            spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION {sql.text(uri)}")
            # Another writer may have taken the name since.
            there = _location(spark, name)
        here = _location(spark, sql.delta(uri))
    except AnalysisException as problem:
        raise CatalogTableError(
            f"Flow {flow.name}: table {uri} cannot be registered as {name}: {first_line(problem)}",
            next_step="Its rows are merged all the same. Correct the flow's catalog_table, or Spark's configuration of that catalog.",
        ) from problem
    except Exception as problem:
        # A metastore that does not answer, or a catalog class that is not one and fails in Java with its own message.
        raise SparkFailedError(
            f"Flow {flow.name}: table {uri} could not be registered as {name}: {first_line(problem)}",
            next_step="Its rows are merged all the same. See the job's log; if it stays so, look at Spark's configuration of that catalog.",
        ) from problem
    if there != here:
        raise CatalogTableError(
            f"Flow {flow.name}: {name} stands for {there} in the catalog, the flow's table lies at {here}.",
            next_step="Its rows are merged all the same. Give the flow another catalog_table; or drop what has the name, and run again.",
        )


def _location(spark: SparkSession, name: str) -> str | None:
    """Return the location of the table of a name, None where the name is free."""
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]
    except AnalysisException as error:
        if error.getCondition() in _NO_SUCH_NAME:
            return None
        raise
    return spark_uri(str(detail["location"])).rstrip("/")
