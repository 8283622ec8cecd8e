"""Keep a topic's own records from files that several topics share."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import DataFrame

from airflow_cdc.model.archive.survey import RecordKind, RecordLayout, TopicShape
from airflow_cdc.model.columns import FILE
from airflow_cdc.pipeline.decode.envelope import TOPIC, named_topic
from airflow_cdc.pipeline.spark import sql


def of_topic(records: DataFrame, topic: str, shapes: Sequence[TopicShape]) -> DataFrame:
    """Return the parsed lines of one topic. As in the survey, each line belongs to exactly one topic of its file.

    :param shapes: of the topic, in the files that were read.
    """
    if all(shape.layout is not RecordLayout.RECORD for shape in shapes):
        return records
    # In a file of values every line is the topic's, even if its rows have a column ``topic``.
    whole = _in({shape.file for shape in shapes if shape.layout is RecordLayout.VALUE})
    owned = _in({shape.file for shape in shapes if not shape.has_topic})
    may_be_broken = any(shape.kind == RecordKind.MALFORMED.value or not shape.has_topic for shape in shapes)
    older = sorted({shape.file for shape in shapes if not shape.reads_beginnings})
    # If no line of the topic can be malformed, the cheaper expression is equivalent.
    named = named_topic(older) if may_be_broken else TOPIC
    is_ours = f"NOT coalesce({named} <> {sql.text(topic)}, {named} IS NULL AND NOT {owned})"
    return records.filter(is_ours if whole == "false" else f"{whole} OR {is_ours}")


def _in(files: Collection[str]) -> str:
    return f"{FILE} IN ({', '.join(map(sql.text, sorted(files)))})" if files else "false"
