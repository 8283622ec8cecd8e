"""Renamed columns: an event with a column's older name is read under the current name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.archive.survey import TopicShape
from airflow_cdc.pipeline.decode.source_columns import IMAGES, is_schema
from airflow_cdc.pipeline.decode.types.connect_types import FORMERLY
from airflow_cdc.pipeline.spark import sql


def formerly(renames: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return older names by column.

    :param renames: current names by older name.
    """
    found: dict[str, tuple[str, ...]] = {}
    for old, new in renames.items():
        found[new] = (*found.get(new, ()), old)
    return found


def with_old_names(names: Iterable[str], formerly: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return names of columns, followed by their older names."""
    known = list(names)
    return known + [old for name in known for old in formerly.get(name, ())]


def under_new_names(shape: TopicShape, renames: Mapping[str, str]) -> TopicShape:
    """Return a shape of row events with current column names; a schema's field lists the older ones (:data:`FORMERLY`)."""
    if shape.value_shape is None or not renames:
        return shape
    if not is_schema(shape.value_shape):
        names = [renames.get(name, name) for name in json.loads(shape.value_shape)]
        return replace(shape, value_shape=json.dumps(names))
    envelope, olds = json.loads(shape.value_shape), formerly(renames)
    for image in envelope["fields"]:
        if image.get("field") in IMAGES:
            image["fields"] = [_renamed(field, renames, olds) for field in image.get("fields", ())]
    return replace(shape, value_shape=json.dumps(envelope))


def _renamed(field: Mapping[str, Any], renames: Mapping[str, str], olds: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    name = renames.get(field["field"], field["field"])
    return {**field, "field": name, FORMERLY: olds[name]} if name in olds else dict(field)


def rename_members(records: DataFrame, formerly: Mapping[str, tuple[str, ...]], images: Iterable[str]) -> DataFrame:
    """Return records whose row images hold the columns under their current names too.

    No event has one column under two names.

    :param records: with ``payload``; its images have a member for each name, NULL where the event lacks it.
    :param images: members of ``payload``.
    """
    if not formerly:
        return records
    payload = F.col("payload")
    for image in images:
        renamed = F.col(f"payload.{image}")
        for name, olds in formerly.items():
            values = ", ".join(f"payload.{image}.{sql.name(each)}" for each in (name, *olds))
            renamed = renamed.withField(sql.name(name), F.expr(f"coalesce({values})"))
        payload = payload.withField(image, renamed)
    return records.withColumn("payload", payload)


def names_today(names: str, formerly: Mapping[str, tuple[str, ...]]) -> str:
    """Return the SQL of an array of names (SQL), with older names replaced by current ones."""
    cases = " ".join(f"WHEN {sql.text(old)} THEN {sql.text(name)}" for name, olds in formerly.items() for old in olds)
    return f"transform({names}, name -> CASE name {cases} ELSE name END)" if cases else names


def as_pattern(text: str) -> str:
    """Return the regular expression of Java that a text alone matches."""
    # Java patterns: \Q…\E quotes any text but \E.
    return rf"\Q{text}\E" if r"\E" not in text else "".join(rf"\x{{{ord(character):x}}}" for character in text)
