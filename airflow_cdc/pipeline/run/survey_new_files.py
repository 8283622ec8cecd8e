"""Survey new files: read once what has arrived since the last run, and record it."""

from __future__ import annotations

from airflow_cdc.model.archive.archived_files import side_by_side
from airflow_cdc.model.archive.survey import READER, Survey, may_skip_offsets
from airflow_cdc.model.errors import ConcurrentRunError
from airflow_cdc.model.look.new_files import NewFiles
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.spark.connect import release_session
from airflow_cdc.pipeline.spark.session import late_session_for_batch
from airflow_cdc.pipeline.survey.find_holes import find_holes
from airflow_cdc.pipeline.survey.look import Look
from airflow_cdc.pipeline.survey.survey_readable import survey_readable

_ATTEMPTS = 5


def survey_new_files(run: ArchiveRun, state: ArchiveState, look: Look) -> Ledger:
    """Survey the archive's new files, set aside unreadable ones, and return the updated ledger.

    :raises ConcurrentRunError: when other runs were repeatedly faster.
    """
    for _ in range(_ATTEMPTS):
        ledger = state.ledger()
        found = look.new_files(ledger)
        if found.files and not _survey(run, state, ledger, found):
            continue
        if not found.files:
            state.write_set_aside(found.set_aside)
        if found.looked != state.looked():
            # Everything in the look is surveyed now and need not be listed again.
            state.write_looked(found.looked)
        return state.ledger() if found.files else ledger
    raise ConcurrentRunError(f"Other runs kept surveying archive {run.archive} at the same time.", next_step="Nothing is lost; run again.")


def _survey(run: ArchiveRun, state: ArchiveState, ledger: Ledger, found: NewFiles) -> bool:
    """Record the contents of new files, and the unreadable ones; return False if another run was faster."""
    new = found.files
    size = sum(file.size for file in new)
    run.progress(f"looking into {len(new)} new files ({megabytes(size)})")
    session = late_session_for_batch(run.spark, batch_bytes=sum(file.text_size for file in new))
    surveyed = survey_readable(session, run.archive, new, natively=run.may_survey_natively)
    skipping = set(may_skip_offsets(surveyed.shapes))
    holes = find_holes(session, run.archive, [file for file in surveyed.files if file.path in skipping])
    release_session(session)
    for file in surveyed.set_aside:
        run.progress(f"set aside, cannot be read: {file}")
    changed = state.replaced(surveyed.files, ledger)
    for item in changed:
        run.progress(f"changed since survey {item.survey}, and read once more: {item.path}")
    number, files = ledger.surveyed_through + 1, side_by_side(surveyed.files)
    survey = Survey(state.archive, number, files, surveyed.shapes, holes, changed, READER)
    is_first = not survey.files or state.add(survey)
    run.after_effect("survey")
    if is_first:
        # After a crash in between, the files are new again and are set aside then.
        state.write_set_aside([*found.set_aside, *surveyed.set_aside])
    return is_first


def megabytes(size: int) -> str:
    """Return a number of bytes in KiB or MiB, for messages."""
    return f"{size / 1024**2:.1f} MiB" if size >= 1024**2 else f"{size / 1024:.0f} KiB"
