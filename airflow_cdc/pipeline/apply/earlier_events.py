"""Events of earlier microbatches, read from the archive once more, beside those of the microbatch."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.errors import StateUnreadableError
from airflow_cdc.model.state.microbatch import Microbatch, read_together
from airflow_cdc.pipeline.apply.guarded import Unguarded
from airflow_cdc.pipeline.decode.decode_events import IS_ROW_EVENT, Decoder
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun, decoder_across, decoder_for
from airflow_cdc.pipeline.reconcile.fold_row_versions import fold_row_versions
from airflow_cdc.pipeline.reconcile.order_events import order_events

IS_NEW = "__cdc_is_new"
"""Whether the event came with this microbatch."""


def with_earlier(asked: Unguarded, first: int) -> DataFrame:
    """Return the microbatch's events, marked by :data:`IS_NEW`, and all events since an earlier microbatch; in no order."""
    run, parts = asked.run, _earlier(asked.run, first)
    decoder = decoder_across(asked.decoder, run.flow, parts)
    ours = _events(run, decoder).withColumn(IS_NEW, F.lit(True))  # noqa: FBT003
    earlier = [_events_of(run, part, decoder).withColumn(IS_NEW, F.lit(False)) for part in parts]  # noqa: FBT003
    return reduce(DataFrame.unionByName, [ours, *earlier])


def in_order(events: DataFrame, asked: Unguarded) -> DataFrame:
    """Return such events, or all of some keys, in order."""
    restarts = asked.decoder.change_restarts
    return order_events(events, asked.keys, reads_among_changes=True, change_restarts=restarts)


def folded(events: DataFrame, asked: Unguarded, name: str) -> DataFrame:
    """Return the row changes of such events in order, staged under a name; what truncates and snapshots void left no row."""
    columns, voids = list(asked.decoder.columns.types), asked.voids
    changes = fold_row_versions(
        events,
        asked.keys,
        columns,
        keeps_deleted=asked.target.flags_deletes,
        voided=voids.of_events,
        change_restarts=asked.decoder.change_restarts,
    )
    return asked.run.write_down(changes.filter(f"NOT {voids.of_rows}"), name)


def _events(run: MicrobatchRun, decoder: Decoder) -> DataFrame:
    return decoder.events(run.lines(), with_images=True).filter(IS_ROW_EVENT)


def _earlier(run: MicrobatchRun, first: int) -> list[Microbatch]:
    """Return what the flow has applied since a microbatch, in as few plans as possible: each costs as much as a large microbatch's data."""
    intents = []
    for number in range(first, run.microbatch.number):
        intent = run.past.intent(number)
        if intent is None:
            raise StateUnreadableError(
                f"Flow {run.flow.name}: the intent of microbatch {number} is gone, and with it which files a transaction began in.",
                next_step="Restore it, or rebuild the table from the archive.",
            )
        # A file that changed is read whole here: its new part must not count as known.
        now = {file.path: file for file in run.microbatch.files}
        same = tuple(file for file in intent.files if now.get(file.path, file).size == file.size)
        intents.append(replace(intent, files=same))
    return read_together(intents)


def _events_of(run: MicrobatchRun, microbatch: Microbatch, decoder: Decoder) -> DataFrame:
    """Return the events of earlier microbatches, decoded by today's rules."""
    return _events(replace(run, microbatch=microbatch), decoder_for(decoder, microbatch))
