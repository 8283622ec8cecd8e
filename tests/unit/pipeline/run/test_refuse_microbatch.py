"""Events of two logs in one topic are refused: positions of two logs do not compare."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_cdc.model.errors import SeveralLogsError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnLogWentBack, OnOtherLog
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.microbatch import Microbatch, PlanPosition
from airflow_cdc.pipeline.run.refuse_microbatch import refuse_other_log
from tests.support.surveys import ARCHIVE, archived, shape

TOPIC = "all.shop.orders"


def microbatch(*logs: str | None, **more: Any) -> Microbatch:
    shapes = tuple(replace(shape("f", TOPIC), log=log, **more) for log in logs)
    return Microbatch(TOPIC, 1, ARCHIVE, (archived("f"),), PlanPosition(1), shapes)


def after(*earlier: Microbatch) -> FlowCheckpoint:
    checkpoint = FlowCheckpoint(TOPIC)
    for number, intent in enumerate(earlier, start=1):
        checkpoint = checkpoint.after(replace(intent, number=number), BatchReport(TOPIC, number, 1, 1), "table")
    return checkpoint


STOPS = CdcFlow(TOPIC)


def test_two_shards_in_one_file_are_refused_by_their_names_whatever_a_log_that_went_back_may_do() -> None:
    accepting = CdcFlow(TOPIC, on_log_went_back=OnLogWentBack.ACCEPT)
    with pytest.raises(SeveralLogsError, match="shardA and shardB") as raised:
        refuse_other_log(accepting, after(), microbatch("shardA", "shardB"))
    assert "on_other_log" in raised.value.next_step


def test_a_shard_that_comes_in_a_later_microbatch_is_refused() -> None:
    with pytest.raises(SeveralLogsError, match="shardB; earlier events come from shardA"):
        refuse_other_log(STOPS, after(microbatch("shardA")), microbatch("shardB"))


def test_one_log_in_many_microbatches_is_not_refused() -> None:
    refuse_other_log(STOPS, after(), microbatch("shop", None))
    refuse_other_log(STOPS, after(microbatch("shop"), microbatch(None)), microbatch("shop"))


def test_a_log_that_was_accepted_once_stays_accepted() -> None:
    known = after(microbatch("before"), microbatch("after"))
    refuse_other_log(replace(STOPS, on_other_log=OnOtherLog.FOLLOW), after(microbatch("before")), microbatch("after"))
    refuse_other_log(STOPS, known, microbatch("before", "after"))
    with pytest.raises(SeveralLogsError):
        refuse_other_log(STOPS, known, microbatch("third"))


@pytest.mark.parametrize("more", [{"kind": "schema_change"}, {"kind": "heartbeat"}, {"connector": "foreign"}, {"connector": None}])
def test_records_that_are_no_events_of_a_known_connector_name_no_log(more: dict[str, Any]) -> None:
    refuse_other_log(STOPS, after(microbatch("shop")), microbatch("other", **more))
