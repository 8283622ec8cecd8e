"""Keep a topic's own records of files that several topics share."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from airflow_cdc.model.columns import FILE
from airflow_cdc.model.survey import RecordLayout, TopicShape
from airflow_cdc.pipeline import sql
from airflow_cdc.pipeline.decode.envelope import TOPIC


def of_topic(records: DataFrame, topic: str, shapes: Sequence[TopicShape]) -> DataFrame:
    """Return the parsed lines of one topic; a line without topic goes to the file's first.

    :param shapes: of the topic, in the files that were read.
    """
    if all(shape.layout is not RecordLayout.RECORD for shape in shapes):
        return records
    # The survey counted each line without a topic for exactly one topic of its file.
    owned = {shape.file for shape in shapes if not shape.has_topic}
    files = ", ".join(sql.text(file) for file in sorted(owned)) or "''"
    return records.filter(f"NOT coalesce({TOPIC} <> {sql.text(topic)}, {TOPIC} IS NULL AND {FILE} NOT IN ({files}))")
