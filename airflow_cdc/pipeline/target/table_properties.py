"""The properties by which a target table keeps its keys, its mode and the names of its columns. Needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping

from airflow_cdc.model.columns import is_reserved
from airflow_cdc.model.flow.scd_columns import ScdColumns

KEYS_PROPERTY = "airflow_cdc.keys"
"""Table property: the key columns as JSON; frozen when the table is created."""
MODE_PROPERTY = "airflow_cdc.mode"
"""Table property: the table's :class:`~airflow_cdc.model.flow.table_mode.TableMode`; frozen like the keys."""
DOCUMENT_COLUMNS_PROPERTY = "airflow_cdc.document_columns"
"""Table property: the document column definition by which all rows were filled."""
RENAMED_PROPERTY = "airflow_cdc.renamed_columns"
"""Table property, JSON: current column names by the older names that late events may use."""
SCD_COLUMNS_PROPERTY = "airflow_cdc.scd_columns"
"""Table property, JSON: the :class:`~airflow_cdc.model.flow.scd_columns.ScdColumns` of a table of versions; frozen like the keys."""
FORMS_PROPERTY = "airflow_cdc.text_forms"
"""Table property, JSON: the forms (:mod:`airflow_cdc.pipeline.decode.types.text_forms`) of texts that identify rows, by column."""
EXACT_STATISTICS = {"airflow_cdc.statistics": "exact"}
"""Table property of tables all of whose files have right statistics in the log: tables of earlier versions lack it."""
MODE_OF_MAPPING = "delta.columnMapping.mode"
"""Table property: how Delta maps column names to those in the files."""


def scd_columns_of(properties: Mapping[str, str]) -> ScdColumns:
    """Return the names that a table of versions has for four of our columns."""
    # Tables of earlier versions lack the property, and have the default names.
    return ScdColumns.from_json(json.loads(properties.get(SCD_COLUMNS_PROPERTY, "{}")))


def has_exact_statistics(properties: Mapping[str, str]) -> bool:
    """Return whether a table records that its statistics are right (:mod:`airflow_cdc.pipeline.target.correct_statistics`)."""
    return EXACT_STATISTICS.items() <= properties.items()


def is_ours(name: str, scd_columns: ScdColumns) -> bool:
    """Return whether a column of a target table is ours, not the source's."""
    return is_reserved(name) or scd_columns.setting_of(name) is not None
