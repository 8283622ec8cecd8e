"""Absent columns: missing from the event's own schema, so their value is unknown, not NULL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_cdc.model.archive.survey import TopicShape
from airflow_cdc.model.columns import KIND
from airflow_cdc.pipeline.decode.envelope import in_line
from airflow_cdc.pipeline.decode.fillers import HASH_OF_NULL
from airflow_cdc.pipeline.decode.renamed_columns import names_today, under_new_names
from airflow_cdc.pipeline.decode.source_columns import SourceColumns, image_names
from airflow_cdc.pipeline.spark import sql


def sometimes_absent(columns: SourceColumns, shapes: Iterable[TopicShape]) -> list[str]:
    """Return the columns that are missing from some of the events' schemas.

    :param shapes: of the records that are not foreign.
    """
    if columns.clears_absent:
        return []
    written = (under_new_names(shape, columns.renames) for shape in shapes if shape.kind in ("r", "c", "u"))
    # A document's image is one text, so its schema lists no columns.
    names = [found for text in {shape.value_shape for shape in written} if text and (found := set(image_names(text)))]
    shared = set.intersection(*names) if names else set(columns.types)
    return [name for name in columns.types if name not in shared and name not in columns.keys]


def hashes_of_null(names: Iterable[str], image: str, formerly: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return by column what NULL stands for among an image's hashes: a value if the event's schema has the column, otherwise none.

    An image without a column contradicts no value of it: the row that an update changes had one before the source dropped the column.

    :param names: of columns that are missing from some of the events' schemas.
    :param image: the envelope's member, such as ``before``.
    :param formerly: as for :func:`names_of_absent`.
    """
    carried = _names_in(image, formerly)
    return {name: f"if(coalesce(array_contains({carried}, {sql.text(name)}), true), {HASH_OF_NULL}, NULL)" for name in names}


def _names_in(image: str, formerly: Mapping[str, tuple[str, ...]]) -> str:
    return names_today(f"json_object_keys({in_line(image)})", formerly)


def names_of_absent(names: Iterable[str], formerly: Mapping[str, tuple[str, ...]]) -> str:
    """Return the SQL of the names that are missing from the event's own schema (array<string>), NULL for none.

    :param formerly: by column: older names under which an event may carry it.
    """
    listed = ", ".join(sql.text(name) for name in names)
    if not listed:
        return "CAST(NULL AS ARRAY<STRING>)"
    carried = _names_in("after", formerly)
    return f"if({KIND} = 'd', NULL, nullif(array_except(array({listed}), coalesce({carried}, array({listed}))), array()))"
