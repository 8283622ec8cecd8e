"""Apply one microbatch: the only place that knows the order of effects.

    read → decode → reconcile → stage      nothing outside the staging folder is touched
    quarantine                              an append with the microbatch's transaction identifier
    make or widen the target                only adds what events need
    log of events, or delete markers        an append, once, or one that may be done twice
    MERGE, or append                        one Delta commit, with the same kind of identifier; it carries the report
    commit marker                           by the caller; rebuilt from the Delta commit when lost

A crash after any of them is harmless. The quarantine and the log of events know their microbatch, so a second append changes nothing;
what was logged but not merged is found in the log by the same microbatch, taken up again. The delete markers know theirs, and do not
count against itself. A target that was made or widened but not merged into holds the same rows as before; so does one whose columns took
the source's newer names while the microbatch was read. A merge without commit marker is found again in the table's history.

A mode (``modes/``) decides what a step does; this module decides which steps there are, and in which order.
"""

from __future__ import annotations

from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.apply.apply_once import apply_once, report_of_commit
from airflow_cdc.pipeline.apply.choose_mode import Settle, choose_mode
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.target.target_table import TargetTable


def apply_microbatch(run: MicrobatchRun) -> BatchReport:
    """Apply a microbatch and return what it did; doing it twice does it once.

    :raises CdcError: terminal or transient by type; nothing is lost, the intent stands.
    """
    return apply_once(run, carry_out)


def carry_out(run: MicrobatchRun, target: TargetTable | None) -> BatchReport:
    """Pick who carries out a microbatch, and have it done: here Spark, step by step, for a table of any mode.

    Another engine gets the same two, makes the same effects in the same order, and returns the same report.

    :param target: None where there is none yet.
    """
    return carry_out_in_spark(choose_mode(run, target), run, target)


def carry_out_in_spark(settle: Settle, run: MicrobatchRun, target: TargetTable | None) -> BatchReport:
    """Make the effects of a microbatch, one after the other, each as the table's mode has it.

    :param settle: the mode's first step, which has the others.
    """
    settled = settle(run, target)
    quarantined = settled.quarantine()
    target, changed = settled.fit_target()
    ready = settled.log(target, settled.report(quarantined, changed))
    if ready.merge is None:
        return ready.report
    report = ready.merge()
    run.after_effect(ready.effect)
    return report_of_commit(run) or report
