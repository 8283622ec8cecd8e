"""Decode the events of a stretch of the log that earlier microbatches of a flow applied."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from airflow_cdc.model.state.microbatch import Microbatch, read_together
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.locate.epoch_begins import OF_LOG
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun, decoder_across, decoder_for


def events_between(run: MicrobatchRun, decoder: Decoder, first: int, last: int | None) -> list[DataFrame]:
    """Return the good events of the earlier microbatches that may hold events between two commits, as decoded then.

    :param last: None: to the end of the log.
    """
    earlier = read_together(_microbatches_between(run, first, last))
    across = decoder_across(decoder, run.flow, earlier)
    return [decoder_for(across, each).events(replace(run, microbatch=each).lines()).filter(OF_LOG) for each in earlier]


def _microbatches_between(run: MicrobatchRun, first: int, last: int | None) -> list[Microbatch]:
    found = []
    for number in range(1, run.microbatch.number):
        report, intent = run.past.report(number), run.past.intent(number)
        if report is None or intent is None or intent.is_again:
            continue
        reach = report.reach
        # A reach does not include reads.
        streams = [(reach.streamed_from[lane].commit, reach.streamed_through[lane].commit) for lane in reach.streamed_from]
        meets = any((last is None or since <= last) and through >= first for since, through in streams)
        if not streams or meets or report.snapshot:
            found.append(intent)
    return found
