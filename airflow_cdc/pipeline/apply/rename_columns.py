"""Rename columns of a target as its source did; what its rows hold stays theirs."""

from __future__ import annotations

import json

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.pipeline.decode.source_columns import SourceColumns
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.target.alter_table import map_columns, rename_column, rename_in_rows, set_properties
from airflow_cdc.pipeline.target.target_table import RENAMED_PROPERTY, TargetTable


def rename_columns(run: MicrobatchRun, columns: SourceColumns, target: TargetTable | None) -> tuple[TargetTable | None, dict[str, str]]:
    """Give the target's columns the names of today, and write down the older ones, under which late events may have them.

    That is written down first: a crash behind it leaves a table whose columns the next attempt renames. Rows are asked for by today's
    names from here on.

    :return: the target as it is now, and today's names of the renamed columns by the older ones.
    :raises ConfigurationError: where nothing may be changed, and the rows could not be asked.
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
        # What a row's newer events left out stands there by the column's name.
        with run.tending():
            rename_in_rows(run.spark, target.uri, old=old, new=new)
        run.after_effect("names told")
        rename_column(run.spark, target.uri, old=old, new=new)
        run.after_effect("rename")
    return target.under(renamed), renamed
