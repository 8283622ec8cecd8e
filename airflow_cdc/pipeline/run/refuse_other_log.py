"""Refuse a microbatch with events of another log than the flow's earlier ones: positions of two logs do not compare.

Several databases or shards in one topic are several logs at once, so the last event of a key is not known. A connector that was renamed, or
that went to another database, is one log after another. The archive does not distinguish them: a person does.
"""

from __future__ import annotations

from airflow_cdc.model.errors import SeveralLogsError
from airflow_cdc.model.flow.cdc_flow import CdcFlow, OnOtherLog
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.microbatch import Microbatch


def refuse_other_log(flow: CdcFlow, checkpoint: FlowCheckpoint, microbatch: Microbatch) -> None:
    """Do nothing where a microbatch names no log that is new to the flow, beside its first one; what was accepted once stays so.

    :raises SeveralLogsError: where it names another, and the flow's policy is to stop.
    """
    known, here = checkpoint.logs, microbatch.logs
    if flow.on_other_log is OnOtherLog.FOLLOW or here <= known or len(known | here) == 1:
        return
    earlier = f"; earlier events come from {_listed(known)}" if known else ""
    raise SeveralLogsError(
        f"Flow {flow.name}, before microbatch {microbatch.number}: the topic's events come from the logs of {_listed(here)}{earlier}"
        " (source.name). Positions of two logs do not compare, so the last event of a row is not known. Nothing of the microbatch was"
        " merged.",
        next_step="If several databases or shards write at the same time, give each a topic of its own, and divide the archived records"
        " by source.name, under a topic name each. If one connector took over from the other (it was renamed, or went to another"
        " database), set on_other_log to follow and run again (docs/how-to/when-the-source-was-rebuilt.md).",
        logs=sorted(known | here),
    )


def _listed(logs: frozenset[str]) -> str:
    return " and ".join(sorted(logs))
