"""Types are found in Python as PySpark's parser finds them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from airflow_cdc.pipeline.decode.decode_events import VALUE_POSITIONS_TYPE
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE
from airflow_cdc.pipeline.target.delta_types import delta_field, delta_type

TYPES = [
    *("STRING", "BINARY", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "FLOAT", "DOUBLE", "BIGINT", "INT", "SMALLINT", "TINYINT"),
    *("DECIMAL(38,0)", "DECIMAL(10, 9)", "ARRAY<STRING>", "ARRAY<ARRAY<DECIMAL(3,1)>>", POSITION_TYPE, VALUE_POSITIONS_TYPE),
    "STRUCT<id: BIGINT, at: STRUCT<name: STRING, of: ARRAY<INT>>, last: DATE>",
]


def test_each_type_is_as_spark_parses_it(spark: SparkSession) -> None:
    columns = DataType.fromDDL(", ".join(f"c{place} {kind} COMMENT 'of {place}'" for place, kind in enumerate(TYPES)))
    found = [delta_field(f"c{place}", kind, f"of {place}") for place, kind in enumerate(TYPES)]
    assert StructType.fromJson({"type": "struct", "fields": found}) == columns
    assert {"type": "struct", "fields": found} == columns.jsonValue()


@pytest.mark.parametrize("kind", ["VARIANT", "MAP<STRING, INT>", "STRING COLLATE UCS", "STRUCT<`a`: INT>", "ARRAY<", "DECIMAL(10)", ""])
def test_other_types_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="only Spark parses"):
        delta_type(kind)
