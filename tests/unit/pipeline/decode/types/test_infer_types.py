"""What JSON values without schema suggest: a type that holds every value seen, or text."""

from __future__ import annotations

import json
from decimal import Decimal

from pyspark.sql import SparkSession

from airflow_cdc.pipeline.decode.types.connect_types import cast_to
from airflow_cdc.pipeline.decode.types.infer_types import infer_types

CASES: dict[str, tuple[list[str], str | None]] = {
    # integers
    "small": (["1", "-1", "0"], "BIGINT"),
    "64 bits": (["9223372036854775807", "-9223372036854775808"], "BIGINT"),
    "one more": (["9223372036854775808"], "DECIMAL(38,0)"),
    "one less": (["-9223372036854775809", "1"], "DECIMAL(38,0)"),
    "38 digits": (["9" * 38, "1"], "DECIMAL(38,0)"),
    # fractions: a column of doubles whose first values happen to be whole must not become one of integers
    "fraction": (["1.5"], "DOUBLE"),
    "whole": (["1.0"], "DOUBLE"),
    "hundred": (["100.0", "2500.0"], "DOUBLE"),
    "zero": (["0.0", "-0.0"], "DOUBLE"),
    "whole and integer": (["1.0", "2"], "DOUBLE"),
    "fraction and integer": (["1", "1.5"], "DOUBLE"),
    "fraction and 53 bits": (["1.5", "9007199254740992", "-9007199254740992"], "DOUBLE"),
    "exponent": (["1e5", "1E-7"], "DOUBLE"),
    "exponent and integer": (["1e5", "3"], "DOUBLE"),
    "large double": (["1.7976931348623157E308"], "DOUBLE"),
    # more digits than a double has; and whole numbers that no double is, which a writer of doubles would print with a point
    "nineteen digits": (["1234567890123456789.0"], "DECIMAL(38,18)"),
    "fraction and one more": (["1.5", "9007199254740993"], "DECIMAL(38,18)"),
    "exponent and one less": (["1e5", "-9007199254740993"], "DECIMAL(38,18)"),
    "fraction and large": (["1.5", "12345678901234567890"], "DECIMAL(38,18)"),
    "long fraction": (["12345678901234.123456789"], "DECIMAL(38,18)"),
    "long fraction and short": (["1.5", "0.123456789012345678", "7"], "DECIMAL(38,18)"),
    "long fraction and exponent": (["0.123456789012345678", "1e5"], "DECIMAL(38,18)"),
    "as long as a double": (["0.12345678901234567"], "DOUBLE"),
    # the rest
    "boolean": (["true", "false"], "BOOLEAN"),
    "boolean and number": (["true", "1"], "STRING"),
    "text": (['"x"', '""'], "STRING"),
    "text that looks like a number": (['"1"'], "STRING"),
    "text and number": (['"x"', "1"], "STRING"),
    "text and boolean": (['"x"', "true"], "STRING"),
    "object": (['{"a": 1}', "{}"], "STRING"),
    "array": (["[1]", "[]"], "STRING"),
    "array and number": (["[1]", "1"], "STRING"),
    # nulls prove nothing
    "null": (["null"], None),
    "null and integer": (["null", "7"], "BIGINT"),
    "null and text": (['"x"', "null"], "STRING"),
    # names that SQL would stumble over
    "it's `odd` \\ \" é": (["1"], "BIGINT"),
    "a.b": (["true"], "BOOLEAN"),
    "%": (["1.5"], "DOUBLE"),
}


def test_a_column_has_the_type_that_holds_all_its_values(spark: SparkSession) -> None:
    images = [f"{{{json.dumps(name)}: {value}}}" for name, (values, _) in CASES.items() for value in values]
    # One image of several columns, a column that nobody asked for, and lines that are no objects.
    images += ['{"small": 5, "text": "y", "unasked": true}', "{", "", "[]", "5", "null"]
    frame = spark.createDataFrame([(image,) for image in images], "image STRING").selectExpr("try_parse_json(image) AS image")

    found = infer_types(frame, [*CASES, "never seen"])

    assert found == {name: kind for name, (_, kind) in CASES.items() if kind}


def test_what_is_inferred_reads_every_value_that_was_seen(spark: SparkSession) -> None:
    for name, (values, kind) in CASES.items():
        if kind is None or kind == "STRING":
            continue
        texts = [value for value in values if value != "null"]
        frame = spark.createDataFrame([(value,) for value in texts], "text STRING")
        rows = frame.selectExpr("text", f"{cast_to(kind).read('text')} AS value").collect()
        for row in rows:
            if kind == "BOOLEAN":
                assert json.dumps(row["value"]) == row["text"], name
            elif kind == "DOUBLE":
                assert row["value"] == float(row["text"]), name
            else:
                assert Decimal(row["value"]) == Decimal(row["text"]), name


def test_no_image_suggests_nothing(spark: SparkSession) -> None:
    assert infer_types(spark.createDataFrame([], "image STRING").selectExpr("try_parse_json(image) AS image"), ["a"]) == {}
