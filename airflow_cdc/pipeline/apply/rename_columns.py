"""Rename columns of a target as its source did; the rows keep their values."""

from __future__ import annotations

import json

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.pipeline.decode.source_columns import SourceColumns
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.target.alter_table import map_columns, rename_column, rename_in_rows, set_properties
from airflow_cdc.pipeline.target.table_properties import RENAMED_PROPERTY
from airflow_cdc.pipeline.target.target_table import TargetTable


def rename_columns(run: MicrobatchRun, columns: SourceColumns, target: TargetTable | None) -> tuple[TargetTable | None, dict[str, str]]:
    """Rename the target's columns to the current names, and record the older names, which late events may use.

    The older names are recorded first: after a crash the next attempt renames the columns. From here on, rows are read under current names.

    :return: the target as it is now, and the current names of the renamed columns by the older ones.
    :raises ConfigurationError: in a dry run, in which columns cannot be renamed and rows cannot be read under current names.
    """
    if target is None:
        return None, {}
    renamed = {old: new for old, new in columns.renames.items() if old in target.columns and new not in target.columns}
    if renamed and run.is_dry:
        raise ConfigurationError(
            f"Flow {run.flow.name}: columns of table {target.uri} have other names in the source by now: {renamed}.",
            next_step="Apply what waits first; that renames them.",
        )
    if not run.is_dry and not columns.renames.items() <= target.renamed.items():
        known = json.dumps({**target.renamed, **columns.renames}, ensure_ascii=False)
        set_properties(run.spark, target.uri, {RENAMED_PROPERTY: known})
        run.after_effect("renames known")
    if renamed:
        map_columns(run.spark, target.uri)
    for old, new in renamed.items():
        # ``__cdc_told_at`` lists a row's left-out values by column name.
        with run.tending():
            rename_in_rows(run.spark, target.uri, old=old, new=new)
        run.after_effect("names in rows")
        with run.tending():
            rename_column(run.spark, target.uri, old=old, new=new)
        run.after_effect("rename")
    return target.under(renamed), renamed
