"""Explain why the files of a microbatch differ from their survey: usually one has changed since."""

from __future__ import annotations

from airflow_cdc.model.archive.archived_files import list_archive
from airflow_cdc.model.errors import ArchivedFileChangedError, CdcError
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.microbatch import Microbatch
from airflow_cdc.pipeline.spark.storage import file_system

_NAMED_FILES = 5


def explain_mismatch(archive: ArchiveState, flow: FlowState, microbatch: Microbatch, problem: CdcError) -> CdcError:
    """Return the error that names the changed files, and mark them for the next survey; return ``problem`` itself where none changed.

    Costs a listing of the archive. Nothing of the microbatch was merged, so its files go to later ones. After a crash between the two
    effects, the next run meets the same mismatch again.
    """
    there = {file.path: file for file in list_archive(*file_system(microbatch.archive)).files}
    changed = [
        (file, now) for file in microbatch.files if (now := there.get(file.path)) and (now.size, now.modified) != (file.size, file.modified)
    ]
    if not changed:
        return problem
    archive.mark_changed(file for file, _ in changed)
    flow.withdraw(microbatch)
    named = ", ".join(f"{file.path} ({file.size} bytes when it was surveyed, {now.size} now)" for file, now in changed[:_NAMED_FILES])
    more = f" and {len(changed) - _NAMED_FILES} more" if len(changed) > _NAMED_FILES else ""
    return ArchivedFileChangedError(
        f"Flow {flow.flow}, microbatch {microbatch.number}: archived files changed after they were surveyed: {named}{more}."
        " Nothing of the microbatch was merged.",
        next_step="Run again: they are surveyed anew, and read whole. Give a file its name when it is complete, or it changes again.",
        files=[file.path for file, _ in changed],
    )
