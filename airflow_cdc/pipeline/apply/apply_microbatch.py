"""Apply one microbatch: the only place that defines the order of effects.

    read → decode → reconcile → stage      nothing outside the staging folder is touched
    quarantine                              an append with the microbatch's transaction identifier
    create or widen the target              only adds what events need
    event log, or delete markers            an append, made once; or one that may be repeated
    MERGE, or append                        one Delta commit, with the same kind of identifier; it carries the report
    commit marker                           by the caller; rebuilt from the Delta commit when lost

A crash after any of them is harmless. The quarantine and the event log know their microbatch, so a second append changes nothing. Events
that were logged but not merged are found in the log by the same microbatch when it is resumed. The delete markers know theirs, and do not
count against it. A target that was created or widened but not merged into holds the same rows as before; so does one whose columns took
the source's newer names while the microbatch was read. A merge without commit marker is found again in the table's history.

A mode (``modes/``) defines what a step does; this module defines the steps and their order.
"""

from __future__ import annotations

from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.apply.apply_once import apply_once, report_of_commit
from airflow_cdc.pipeline.apply.choose_mode import choose_mode
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.target.target_table import TargetTable


def apply_microbatch(run: MicrobatchRun) -> BatchReport:
    """Apply a microbatch and return its report. Idempotent.

    :raises CdcError: terminal or transient by type; no data is lost, and the intent stays.
    """
    return apply_once(run, carry_out)


def carry_out(run: MicrobatchRun, target: TargetTable | None) -> BatchReport:
    """Carry out the effects of a microbatch in order. Each engine settles a mode's steps in its own way; the order is the same.

    :param target: None where the table does not exist yet.
    """
    settled = choose_mode(run, target)(run, target)
    quarantined = settled.quarantine()
    target, changed = settled.fit_target()
    ready = settled.log(target, settled.report(quarantined, changed))
    if ready.merge is None:
        return ready.report
    report = ready.merge()
    run.after_effect(ready.effect)
    return report_of_commit(run) or report
