"""What exactness costs: our fold against the plain last event per key, from the archived lines to the staged row changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import fsspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.columns import ABSENT, COMMITTED_AT, OFFSET, OP, ORDINAL, PARTITION, POSITION, UNAVAILABLE
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.pipeline.apply.fold_changes import latest_changes, resolve_hazards
from airflow_cdc.pipeline.decode.decode_events import IS_ROW_EVENT
from airflow_cdc.pipeline.microbatch.count_events import count_surveyed
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.settle.plan_decoding import plan_decoding
from airflow_cdc.pipeline.spark.session import session_for_batch
from airflow_cdc.pipeline.survey.source_facts import NOTHING_KNOWN
from benchmarks import size
from benchmarks.events import spread, with_takeovers, write_events
from benchmarks.measure import Result, in_turn
from benchmarks.small_events import TOPIC

EVENTS, KEYS, ROUNDS = 300_000, 150_000, 3


def run(spark: SparkSession, folder: Path, *, hazards: float) -> Result:
    """Reconcile one batch again and again, both ways.

    :param hazards: the share of events by which one row takes another's key.
    """
    name = "reconcile-hazards" if hazards else "reconcile"
    archive, lake = folder / "archive", folder / "lake"
    events, keys = size.scaled(EVENTS), size.scaled(KEYS)
    changes = with_takeovers(spread(events, keys, first_transaction=1, seed=1), hazards, seed=2)
    write_events(archive / "0.jsonl", changes, first=1, seed=3)
    apply_archive(ArchiveRun(spark, str(archive), str(lake)))
    works = _works(spark, lake)
    title = f"{events:,} events of {keys:,} keys, {hazards:.0%} of them hazards: lines to row changes"
    return Result(name, title, "last per key", in_turn(works, rounds=ROUNDS, warm_ups=3))


def _works(spark: SparkSession, lake: Path) -> dict[str, Callable[[], object]]:
    fs, root = fsspec.core.url_to_fs(str(lake.absolute()))
    state = FlowState(fs, root, TOPIC)
    microbatch = state.intent(1)
    assert microbatch, "the archive was not applied"
    session = session_for_batch(spark, batch_bytes=microbatch.text_size)
    attempt = MicrobatchRun(
        spark=session,
        lake=str(lake.absolute()),
        flow=CdcFlow(TOPIC),
        application="bench",
        checkpoint=FlowCheckpoint(TOPIC),
        microbatch=microbatch,
        past=state,
    )
    decoder = plan_decoding(session, attempt.flow, microbatch, None, NOTHING_KNOWN)

    def last_per_key(columns: Sequence[str]) -> None:
        events = decoder.events(attempt.lines()).filter(IS_ROW_EVENT)
        last = F.max_by(F.struct(*columns), F.struct(POSITION, ORDINAL)).alias("last")
        attempt.write_down(events.groupBy(*decoder.columns.keys).agg(last).select("last.*"), "last")

    whole_event = decoder.events(attempt.lines()).columns
    of_row = [*decoder.columns.types, POSITION, OP, COMMITTED_AT, PARTITION, OFFSET, UNAVAILABLE, ABSENT]

    def ours() -> None:
        surveyed = count_surveyed(decoder.shapes)
        latest = latest_changes(attempt, decoder, decoder.events(attempt.lines()), surveyed=surveyed)
        if latest.hazardous is not None and not latest.hazardous.isEmpty():
            resolve_hazards(attempt, decoder, latest, surveyed=surveyed, target=None)

    return {
        "ours": ours,
        "last per key": partial(last_per_key, whole_event),
        "last per key, only what a row holds": partial(last_per_key, of_row),
    }
