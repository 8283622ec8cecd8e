"""Quarantine rejects: set aside rejected records with their reason, and account for every record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import functions as F

from airflow_cdc.model.columns import KIND, REJECT
from airflow_cdc.model.errors import CountMismatchError
from airflow_cdc.model.places import quarantine_uri
from airflow_cdc.pipeline.apply.refuse_all_rejected import refuse_all_rejected
from airflow_cdc.pipeline.apply.refuse_mismatch import refuse_mismatch
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.microbatch.count_events import Surveyed, count_kinds
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.record.append_once import append_once
from airflow_cdc.pipeline.record.quarantine import quarantined_rows


@dataclass(frozen=True, kw_only=True)
class Quarantined:
    """The rejects, and what the records turned out to be."""

    rejects: Mapping[str, int] = field(default_factory=dict)
    """Count by reason."""
    surveyed: Surveyed = field(default_factory=Surveyed)
    """The survey's count, corrected where decoding classifies an odd record better."""

    @property
    def count(self) -> int:
        """Number of rejected records."""
        return sum(self.rejects.values())


def quarantine_rejects(run: MicrobatchRun, decoder: Decoder, surveyed: Surveyed, *, taken: int) -> Quarantined:
    """Write the rejects to the flow's quarantine; costs a second pass over the archived files, made only where there are any.

    :param taken: number of events taken in.
    :raises CountMismatchError: when records are lost between the two passes.
    :raises AllRejectedError: when every event is rejected, and the flow has no table yet.
    :raises ColumnMismatchError: when one column does not fit most of the events.
    """
    if surveyed.to_account_for == taken:
        return Quarantined(surveyed=surveyed)
    decoded = decoder.events(run.lines(numbered=True))
    rows = quarantined_rows(decoded.filter(F.col(REJECT).isNotNull()), topic=run.flow.topic, microbatch=run.microbatch.number)
    by_reason = {row["reason"]: int(row["count"]) for row in rows.groupBy("reason").count().collect()}
    rejected = sum(by_reason.values())
    if surveyed.to_account_for != taken + rejected:
        counted = count_kinds({row[KIND]: int(row["count"]) for row in decoded.groupBy(KIND).count().collect()})
        if counted.read != surveyed.read or counted.to_account_for != taken + rejected:
            raise CountMismatchError(
                f"Flow {run.flow.name}, microbatch {run.microbatch.number}: the archive was found to hold {surveyed.read} records, of which"
                f" {counted.read} were read; {taken} are taken in and {rejected} rejected ({by_reason}) of {counted.to_account_for}.",
                next_step="Nothing was merged. Please report this with the microbatch's intent file.",
            )
        surveyed = counted
    refuse_mismatch(run, rows, by_reason, events=surveyed.rows)
    refuse_all_rejected(run, rows, by_reason, taken=taken)
    if rejected and not run.is_dry:
        uri = run.state(quarantine_uri)
        append_once(run.spark, rows, uri, application=f"quarantine:{run.application}", version=run.microbatch.number)
        run.after_effect("quarantine")
    return Quarantined(rejects=by_reason, surveyed=surveyed)
