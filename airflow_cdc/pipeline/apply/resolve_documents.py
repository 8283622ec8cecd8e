"""Resolve documents: complete row changes whose last event carries only a patch, for late events too."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import OFFSET, OP, PARTITION, POSITION, VALUE_POSITIONS
from airflow_cdc.model.errors import StateUnreadableError, UnsupportedConnectorError
from airflow_cdc.model.state.microbatch import Microbatch, read_together
from airflow_cdc.pipeline.decode.decode_events import IS_ROW_EVENT, Decoder
from airflow_cdc.pipeline.decode.mongodb import PATCH
from airflow_cdc.pipeline.locate.file_parts import read_microbatch
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun, decoder_for
from airflow_cdc.pipeline.microbatch.reading_earlier import reading_earlier
from airflow_cdc.pipeline.reconcile.fold_documents import fold_documents, keys_to_fold
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import HAZARD, REACH, READS, keep_latest_per_key
from airflow_cdc.pipeline.reconcile.order_events import order_events
from airflow_cdc.pipeline.reconcile.rule import is_known_newer
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.target_table import TargetTable


def resolve_documents(run: MicrobatchRun, decoder: Decoder, latest: DataFrame, *, target: TargetTable | None) -> DataFrame:
    """Return each key's last event with its document: patches apply to the microbatch's own document, or else to the target's."""
    keys = decoder.columns.keys
    latest = latest.drop(READS)
    asked = keys_to_fold(latest, keys, keeps_deleted=decoder.keeps_deleted)
    if asked.isEmpty():
        return latest
    restarts = decoder.change_restarts
    events = decoder.events(run.lines()).filter(IS_ROW_EVENT)
    events = order_events(events, keys, reads_among_changes=True, change_restarts=restarts)
    theirs = events.join(F.broadcast(asked), list(keys), "left_semi")
    return run.write_down(fold_documents(latest, theirs, run.rows_of(target) if target else None, keys=keys), "documents")


def fold_late_documents(
    run: MicrobatchRun, decoder: Decoder, live: DataFrame, *, known: DataFrame, target: TargetTable
) -> DataFrame | None:
    """Return the row changes of keys with a known event newer than this microbatch's first, where a patch is among them: folded from all
    events of the key that this life of the flow has applied. None where there are none.

    Costs a pass over the whole archive.

    :param known: the target's rows and the delete markers: keys, position, operation, offset and ``__cdc_told_at``.
    """
    keys, restarts = list(target.keys), decoder.change_restarts
    touched = (
        live.alias("s")
        .join(known.alias("k"), F.expr(sql.same_key("s", "k", keys)))
        .filter(f"k.{VALUE_POSITIONS} IS NOT NULL OR s.{VALUE_POSITIONS} IS NOT NULL")
        .filter(f"({_may_stand_among(decoder)}) OR {is_known_newer('k', 's')}")
        # Older events add nothing to a newer, whole document.
        .filter(f"k.{VALUE_POSITIONS} IS NOT NULL OR NOT ({is_known_newer('k', 's')})")
        .select(*[F.col(f"s.{sql.name(key)}") for key in keys])
        .distinct()
    )
    touched = run.write_down(touched, "touched")
    if touched.isEmpty():
        return None
    with reading_earlier(run, touched):
        everything = reduce(DataFrame.unionByName, (_events_of(run, decoder, microbatch) for microbatch in _applied(run)))
        theirs = everything.join(F.broadcast(touched), keys, "left_semi")
        theirs = order_events(theirs, keys, reads_among_changes=True, change_restarts=restarts)
        theirs = run.write_down(theirs, "everything")
    latest = keep_latest_per_key(theirs, keys, list(decoder.columns.types), change_restarts=restarts).drop(READS)
    folded = fold_documents(latest, theirs, None, keys=keys).withColumn(HAZARD, F.lit(0))
    return run.write_down(folded.select(*map(sql.name, live.columns)), "refolded")


def _may_stand_among(decoder: Decoder) -> str:
    """Return whether a key's known state ``k`` may stand among the events of a row change ``s``, or after them.

    Positions do not place reads, so the first position does not cover them. In one lane the archive's order does; elsewhere a change that
    may begin with a read may begin before anything.
    """
    may_span_lanes = len({shape.partition for shape in decoder.shapes}) > 1 and any(shape.kind == "r" for shape in decoder.shapes)
    in_lane = f"k.{PARTITION} <=> s.{PARTITION} AND k.{OFFSET} IS NOT NULL AND s.{REACH}.first_offset IS NOT NULL"
    by_position = f"k.{POSITION} >= coalesce(s.{REACH}.first, s.{POSITION})"
    return f"""CASE WHEN {in_lane} AND {not may_span_lanes}
        THEN k.{OFFSET} >= s.{REACH}.first_offset OR (k.{OP} <> 'r' AND {by_position})
        ELSE {by_position} OR NOT s.{REACH}.expects END"""


def refuse_patches(flow: str, decoder: Decoder, events: DataFrame) -> None:
    """Refuse patch updates of documents in a table that keeps versions.

    :raises UnsupportedConnectorError: when there is one.
    """
    if decoder.dialect.documents and not events.filter(F.col(PATCH).isNotNull() & F.expr(IS_ROW_EVENT)).isEmpty():
        raise UnsupportedConnectorError(
            f"Flow {flow}: some updates carry only what changed in their document, and a table of versions needs whole documents.",
            next_step="Set the connector's capture.mode to change_streams_update_full, or take stored_as_scd_type: 2 from the flow.",
        )


def _events_of(run: MicrobatchRun, decoder: Decoder, microbatch: Microbatch) -> DataFrame:
    of_files = decoder_for(decoder, microbatch)
    return of_files.events(read_microbatch(run.spark, microbatch)).filter(IS_ROW_EVENT)


def _applied(run: MicrobatchRun) -> list[Microbatch]:
    """Return everything that the flow has applied, including this microbatch, as one microbatch per archive."""
    intents = [run.past.intent(number) for number in range(1, run.microbatch.number)]
    gone = [number for number, intent in enumerate(intents, start=1) if intent is None]
    if gone:
        raise StateUnreadableError(
            f"Flow {run.flow.name}: the intents of microbatches {gone} are gone, and with them which files hold the documents"
            " that late events change.",
            next_step="Restore them, or rebuild the table from the archive.",
        )
    # Files that were read again belong to other microbatches of these.
    return read_together(
        microbatch for microbatch in (*(intent for intent in intents if intent), run.microbatch) if not microbatch.is_again
    )
