"""Refuse a planned microbatch, as the flow's policies ask: before missing offsets, and with events of another log than the earlier ones.

Several databases or shards in one topic are several logs at once, so the last event of a key is not known. A connector that was renamed, or
that went to another database, is one log after another. The archive does not distinguish them: a person does.
"""

from __future__ import annotations

from airflow_cdc.model.archive.completeness import OffsetGap
from airflow_cdc.model.errors import OffsetGapError, SeveralLogsError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnGap, OnOtherLog
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.microbatch import Microbatch


def refuse_gap(flow: CdcFlow, gaps: tuple[OffsetGap, ...], microbatch: Microbatch) -> None:
    """Do nothing where no offset is missing, or where the flow goes on without it.

    :raises OffsetGapError: where offsets are missing, and the flow's policy is to stop.
    """
    if flow.on_gap is not OnGap.STOP or not gaps:
        return
    more = f" And {len(gaps) - 1} more ranges." if len(gaps) > 1 else ""
    raise OffsetGapError(
        f"Flow {flow.name}, before microbatch {microbatch.number}: {gaps[0]}.{more} The flow's policy is to stop.",
        next_step="Bring the missing records to the archive; or, if Kafka never had them, set on_gap to 'warn'; then run again.",
        gaps=gaps,
    )


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
