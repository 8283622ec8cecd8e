"""The nearest rival: Spark 4.2's own AUTO CDC handler of SCD type 1, driven over its internal classes, as its pipelines refuse Delta."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from benchmarks.base import AUTOCDC_METADATA, AUTOCDC_SEQUENCE
from benchmarks.contestants.contestant import OnSpark, struct_of
from benchmarks.shapes import KEY

_TARGET, _DELETES = "bench_autocdc", "bench_autocdc_deletes"


class AutoCdc(OnSpark):
    """Its two merges: into the table of deletes that it keeps, and into the target, which has deletion vectors."""

    name = "AUTO CDC"

    @property
    def origin(self) -> Path:
        """The table with AUTO CDC's column."""
        return self.task.base.autocdc

    def prepare(self) -> None:
        """Copy the table, and make the empty table of deletes."""
        super().prepare()
        kept = f"{AUTOCDC_METADATA} STRUCT<deleteSequence: {AUTOCDC_SEQUENCE}, upsertSequence: {AUTOCDC_SEQUENCE}>"
        for name in (_TARGET, _DELETES):
            self.spark.sql(f"DROP TABLE IF EXISTS {name}")
        self.spark.sql(f"CREATE TABLE {_TARGET} USING delta LOCATION '{self.table}'")
        self.spark.sql(f"CREATE TABLE {_DELETES} ({KEY} BIGINT, {kept}) USING delta LOCATION '{self.folder / 'deletes'}'")

    def merge(self) -> None:
        """Read the events and hand them over as a micro-batch."""
        source = "STRUCT<commit_lsn: STRING, change_lsn: STRING, event_serial_no: BIGINT>"
        record = f"key STRUCT<{KEY}: BIGINT>, value STRUCT<after: {struct_of(self.task.types)}, source: {source}, op: STRING>"
        sequence = "struct(value.source.commit_lsn AS commit, value.source.change_lsn AS change, value.source.event_serial_no AS serial)"
        others = [f"value.after.{name}" for name in self.task.names if name != KEY]
        events = self.spark.read.schema(record).json(self.task.paths).filter("value IS NOT NULL")
        batch = events.selectExpr(f"key.{KEY}", *others, f"{sequence} AS sequence", "value.op")
        self._handler().execute(batch._jdf, 0)

    def _handler(self) -> Any:
        """Return a handler for batches with the table's columns, ``sequence`` and ``op``."""
        jvm: Any = self.spark._jvm
        classes = jvm.org.apache.spark.sql.pipelines.autocdc

        def sequence_of(items: list[Any]) -> Any:
            return jvm.org.apache.spark.api.python.PythonUtils.toSeq(items)

        def names(*texts: str) -> Any:
            return sequence_of([classes.UnqualifiedColumnName.apply(text) for text in texts])

        some = jvm.scala.Option.apply
        type_1 = getattr(getattr(classes, "ScdType$Type1$"), "MODULE$")
        excluded = getattr(classes, "ColumnSelection$ExcludeColumns")(names("op", "sequence"))
        arguments = classes.ChangeArgs(names(KEY), F.col("sequence")._jc, type_1, some(F.expr("op = 'd'")._jc), some(excluded))
        kind = self.spark.sql(f"SELECT CAST(NULL AS {AUTOCDC_SEQUENCE}) AS s").schema["s"].dataType.json()
        processor = classes.Scd1BatchProcessor(arguments, jvm.org.apache.spark.sql.types.DataType.fromJson(kind))
        table = jvm.org.apache.spark.sql.catalyst.TableIdentifier
        return classes.Scd1ForeachBatchHandler(processor, table(_DELETES), table(_TARGET))
