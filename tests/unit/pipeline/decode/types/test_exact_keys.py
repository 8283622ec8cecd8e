"""A key that is a number takes its own texts alone: no two become one."""

from __future__ import annotations

import math

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.decode.types.connect_types import STRING, cast_to, column_type, read_as
from airflow_cdc.pipeline.decode.types.exact_keys import exact_key

OWN = {
    "DOUBLE": [
        *(
            "0",
            "0.0",
            "-0.0",
            "1",
            "1.0",
            "1.50",
            "-2.5",
            "0.1",
            "1e5",
            "1.0E10",
            "1.0E-5",
            "1E300",
            "123456789012345",
            "0.000123456789012345",
        ),
        *(
            "0.30000000000000004",
            "9007199254740992",
            "9007199254740992.0",
            "9.007199254740992E15",
            "1.7976931348623157E308",
            "NaN",
            "Infinity",
        ),
        *("2.2250738585072014E-308", "100000000000000000000", "-Infinity"),
    ],
    "FLOAT": ["0.1", "1.5", "16777216", "1.6777216E7", "3.4028235E38", "0.25", "123456", "0.33333334"],
    "BIGINT": ["0", "7", "-7", "10", "9223372036854775807", "-9223372036854775808"],
}
NOT_ITS_OWN = {
    "DOUBLE": [
        *("9007199254740993", "-9007199254740993.0", "0.10000000000000001", "0.1234567890123456789", "1E400", "-1E400", "1E-400", "3E-324"),
        *("1.0000000000000000000000000000001", "12345678901234567890", "1.2345678901234567890E-7"),
    ],
    "FLOAT": ["16777217", "0.100000001", "1E39", "1E-60", "0.333333333"],
    "BIGINT": ["07", "+7", " 7", "7 ", "7.0", "007", "-07", "00", "9223372036854775808", "7e0", "x", ""],
}


@pytest.mark.parametrize("kind", OWN)
def test_its_own_texts_are_read_and_others_do_not_fit(spark: SparkSession, kind: str) -> None:
    texts = [(text,) for text in (*OWN[kind], *NOT_ITS_OWN[kind])]
    read = exact_key(cast_to(kind)).read
    rows = spark.createDataFrame(texts, "text STRING").selectExpr("text", f"{read('text')} AS value", f"try_cast(text AS {kind}) AS plain")
    found = {row["text"]: (row["value"], row["plain"]) for row in rows.collect()}
    assert [text for text in OWN[kind] if repr(found[text][0]) != repr(found[text][1])] == []
    assert [text for text in NOT_ITS_OWN[kind] if found[text][0] is not None] == []
    if kind == "DOUBLE":
        assert math.isnan(found["NaN"][0])
        assert found["0.30000000000000004"][0] == 0.30000000000000004


def test_other_types_keep_their_rules() -> None:
    for rule in (STRING, cast_to("DECIMAL(38,18)")):
        assert exact_key(rule) is rule


def test_encoded_integers_and_the_source_s_own_doubles_keep_theirs() -> None:
    encoded = column_type({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "0"}}, "oracle")
    as_integer = read_as("BIGINT", encoded)
    assert exact_key(as_integer) is as_integer
    assert exact_key(double := cast_to("DOUBLE"), is_declared=True) is double
