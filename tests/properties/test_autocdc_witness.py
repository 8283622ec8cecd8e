"""A second witness: Spark's own AUTO CDC, where it claims to be right, ends with the same rows as we and the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.connectors.sqlserver import sqlserver_lsn
from tests.conftest import Apply
from tests.properties.test_histories import SHUFFLED, TOPIC, differing, land
from tests.support.connectors import DIALECTS, Row
from tests.support.events import Record
from tests.support.histories import Archive
from tests.support.tables import read_rows

COLUMNS = "db INT, id INT, v STRING, body STRING"
SEQUENCE = "STRUCT<commit: BIGINT, change: BIGINT, serial: INT>"


class AutoCdc:
    """Spark 4.2's handler of SCD type 1, which its pipelines refuse to Delta, driven over its internal classes."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        jvm: Any = spark._jvm
        self._classes = jvm.org.apache.spark.sql.pipelines.autocdc
        metadata = f"__spark_autocdc_metadata STRUCT<deleteSequence: {SEQUENCE}, upsertSequence: {SEQUENCE}>"
        spark.sql(f"CREATE TABLE witness ({COLUMNS}, seq {SEQUENCE}, {metadata}) USING delta LOCATION '{folder / 'witness'}'")
        spark.sql(f"CREATE TABLE witness_deletes (db INT, id INT, {metadata}) USING delta LOCATION '{folder / 'deletes'}'")
        names = [self._classes.UnqualifiedColumnName.apply(name) for name in ("db", "id", "op")]
        option, type_1 = jvm.scala.Option.apply, getattr(getattr(self._classes, "ScdType$Type1$"), "MODULE$")
        excluded = getattr(self._classes, "ColumnSelection$ExcludeColumns")(self._seq(names[2:]))
        deletes = F.expr("op = 'd'")._jc
        arguments = self._classes.ChangeArgs(self._seq(names[:2]), F.col("seq")._jc, type_1, option(deletes), option(excluded))
        kind = spark.createDataFrame([], f"seq {SEQUENCE}").schema["seq"].dataType.json()
        processor = self._classes.Scd1BatchProcessor(arguments, jvm.org.apache.spark.sql.types.DataType.fromJson(kind))
        table = jvm.org.apache.spark.sql.catalyst.TableIdentifier
        self._handler = self._classes.Scd1ForeachBatchHandler(processor, table("witness_deletes"), table("witness"))

    def _seq(self, items: list[Any]) -> Any:
        jvm: Any = self._spark._jvm
        return jvm.org.apache.spark.api.python.PythonUtils.toSeq(items)

    def apply(self, records: list[Record], number: int) -> None:
        """Merge one batch of SQL Server events."""
        rows = [_row(record) for record in records if record["value"]]
        frame: DataFrame = self._spark.createDataFrame(rows, f"{COLUMNS}, seq {SEQUENCE}, op STRING")
        self._handler.execute(frame._jdf, number)

    def rows(self) -> list[Row]:
        """Return the table's rows by key."""
        return [row.asDict() for row in self._spark.table("witness").select("db", "id", "v", "body").orderBy("db", "id").collect()]


def _row(record: Record) -> tuple[Any, ...]:
    value, source = record["value"], record["value"]["source"]
    image = value["after"] or value["before"]
    numbers = [sqlserver_lsn(source[name]) if source[name] else 0 for name in ("commit_lsn", "change_lsn")]
    sequence = (*numbers, int(source["event_serial_no"] or 0))
    return image["db"], image["id"], image["v"], image["body"], sequence, value["op"]


@pytest.mark.deep
@pytest.mark.parametrize("how", [{}, SHUFFLED], ids=["in order", "shuffled and repeated"])
def test_sparks_own_auto_cdc_ends_with_the_same_rows_deep(how: dict[str, Any], apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    archive = Archive(DIALECTS["sqlserver"], TOPIC, 5, 500, plain=True)
    files = archive.files(3, **how)
    witness = AutoCdc(spark, tmp_path)
    try:
        for number, file in enumerate(files):
            witness.apply(file, number)
        theirs = witness.rows()
    finally:
        spark.sql("DROP TABLE IF EXISTS witness")
        spark.sql("DROP TABLE IF EXISTS witness_deletes")
    apply(tmp_path / "archive", tmp_path / "lake", flows=land(files, tmp_path / "archive", 3))
    assert not differing(read_rows(spark, str(tmp_path / "lake"), TOPIC, limit=10**6).rows, archive.rows)
    assert not differing(theirs, archive.rows)
