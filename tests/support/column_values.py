"""Read texts by the rules of columns, in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from airflow_cdc.model.columns import RAW, RAW_KEY
from airflow_cdc.pipeline.decode.types.connect_types import ColumnType, column_type

GARBAGE = ("", " ", "x", "null", "1.5.2", "--1", "{}", "[1]", "0x10", "１２", "1 2", "1,5")


def read(
    session: SparkSession, rules: Mapping[str, ColumnType], texts: Sequence[str | None], as_sql: str = "{}"
) -> dict[str, dict[str | None, Any]]:
    """Return by rule and text the value that the rule reads; ``as_sql`` says in what form to fetch it."""
    frame = session.createDataFrame([(text, None, None) for text in texts], f"text STRING, {RAW} STRING, {RAW_KEY} STRING")
    fetched = [f"{as_sql.format(rule.read('text'))} AS `{name}`" for name, rule in rules.items()]
    rows = frame.selectExpr("text", *fetched).collect()
    types = dict(frame.selectExpr(*[f"{rule.read('text')} AS `{name}`" for name, rule in rules.items()]).dtypes)
    assert types == {name: rule.sql_type.lower() for name, rule in rules.items()}
    return {name: {row["text"]: row[name] for row in rows} for name in rules}


def semantic(name: str, literal: str = "int64", connector: str = "sqlserver", **more: Any) -> ColumnType:
    return column_type({"type": literal, "name": name, "optional": True, "field": "f", **more}, connector)
