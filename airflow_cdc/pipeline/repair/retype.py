"""Retype a flow: rebuild its table from the archive with the types that are known now, compare, and replace it.

The flow's applied microbatches are reapplied in a separate lake, under the current settings. The live table then changes by one Delta
commit, and the flow's own tables beside it (quarantine, delete markers, event log) are replaced after that. A note is in place from before
the first of these effects until after the last one: an interrupted run is finished by the next, and no other run of the flow begins
meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import Row, SparkSession

from airflow_cdc.model.errors import CdcError, ConfigurationError, TableChangedError
from airflow_cdc.model.files import absolute_uri, short_hash
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.routes import settings_of
from airflow_cdc.model.places import delete_markers_uri, events_uri, expired_markers_uri, moves_uri, quarantine_uri, retype_uri
from airflow_cdc.model.report.foreign_change import UPKEEP
from airflow_cdc.model.report.retyping import Retyped, RetypeNote
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.commit_metadata import metadata_text
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.lease import WAIT_SECONDS, Lease, Leases
from airflow_cdc.pipeline.run.apply_again import FlowAgain
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.run.check_state import StateCheck
from airflow_cdc.pipeline.run.select_flows import check_known
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.connect import release_session
from airflow_cdc.pipeline.spark.session import noted, session_for_batch
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.spark.uris import spark_uri
from airflow_cdc.pipeline.survey.source_facts import SourceFacts, facts_of
from airflow_cdc.pipeline.target.find_commit import history_of
from airflow_cdc.pipeline.target.lost_commits import unless_lost
from airflow_cdc.pipeline.target.refuse_other_shape import refuse_other_shape
from airflow_cdc.pipeline.target.table_properties import FORMS_PROPERTY, MODE_OF_MAPPING
from airflow_cdc.pipeline.target.target_table import columns_of, describe_table, read_target

_OWN_TABLES = (quarantine_uri, delete_markers_uri, expired_markers_uri, moves_uri, events_uri)


@dataclass(frozen=True)
class Retyping:
    """Which flow to retype."""

    spark: SparkSession
    archive: str
    """URI of the archive's root."""
    lake: str
    """URI of the lake's root."""
    flow: str
    """Name of the flow."""
    dry_run: bool = False
    """Whether to report only what would change; the next run goes on from there."""
    flows: Mapping[str, CdcFlow] = field(default_factory=dict)
    """Settings by topic, as in the flow's runs."""
    progress: Callable[[str], None] = lambda line: None
    """Receives progress messages, one line at a time."""
    after_effect: Callable[[str], None] = lambda effect: None
    """Receives the name of each effect once it is done; tests crash there."""
    wait_seconds: float = WAIT_SECONDS
    """How long to wait for another run that writes the flow."""


def retype(order: Retyping) -> Retyped:
    """Rebuild a flow's table with the types that are known now, and replace the live one unless it is a dry run.

    :raises ConfigurationError: when the lake has applied nothing of the flow.
    :raises TableModeError: when the flow's settings ask for a table of another shape.
    :raises ConcurrentRunError: when another run is writing the flow, or another writer committed to the table meanwhile.
    :raises TableChangedError: when the archive does not reproduce what was applied; the table was left unchanged.
    :raises CdcError: when a microbatch cannot be reapplied; the table was left unchanged, and the next run goes on.
    """
    archive, lake = absolute_uri(order.archive), absolute_uri(order.lake)
    fs, root = file_system(lake)
    check_known(ArchiveState(fs, root, archive), lake, order.flow)
    with Leases(fs, root, order.wait_seconds, progress=order.progress).hold(order.flow) as lease:
        return _retype(order, archive, lake, lease)


def _retype(order: Retyping, archive: str, lake: str, lease: Lease) -> Retyped:
    fs, root = file_system(lake)
    state, flow = ArchiveState(fs, root, archive), settings_of(order.flows, order.flow)
    past = FlowState(fs, root, order.flow)
    checkpoint = past.checkpoint()
    target = read_target(order.spark, spark_uri(table)) if (table := checkpoint.table_in(lake)) else None
    if target is None:
        raise ConfigurationError(
            f"Flow {order.flow}: there is no table to retype.",
            next_step="Apply the archive (airflow-cdc apply) with the types that are known.",
        )
    refuse_other_shape(flow, target)
    run = ArchiveRun(order.spark, archive, lake, order.flows, (), order.progress, lease.guarding(order.after_effect), lease=lease)
    facts = facts_of(order.spark, state, state.ledger(), lake)
    return _FlowRetyping(order, run, flow, past, checkpoint, facts).run()


@dataclass(frozen=True)
class _FlowRetyping:
    order: Retyping
    archive_run: ArchiveRun
    flow: CdcFlow
    past: FlowState
    checkpoint: FlowCheckpoint
    facts: SourceFacts

    def run(self) -> Retyped:
        if not self.note.replaces:
            self._make_anew()
        found = self._compare()
        if self.order.dry_run:
            return found
        self._replace()
        return Retyped(found.flow, found.columns, found.rows, found.rejects, is_done=True)

    def _make_anew(self) -> None:
        StateCheck(self.order.spark, self.archive_run.lake, self.flow, self.past).before(self.checkpoint)
        self._refuse_vouched()
        if self.note.settings != self._settings:
            self.again.clear()
            self.note.write(self._settings)
        for number in range(1, self.checkpoint.number + 1):
            was, now = self.again.apply(number)
            if was and was.truncated_through != now.truncated_through:
                self.again.clear()
                raise self._refused(f"microbatch {number} applies other truncates than it did: on_truncate of the flow was another then")

    def _refuse_vouched(self) -> None:
        vouched = [commit.version for commit in history_of(self.order.spark, self._table) if commit.is_intended and commit.changes_rows]
        if vouched:
            raise self._refused(
                f"the archive knows nothing of the changes that somebody vouched for (versions {', '.join(map(str, vouched))})"
            )

    def _compare(self) -> Retyped:
        before, now = (columns_of(self.order.spark, uri) for uri in (self._table, self.again.table))
        names = [*now, *(name for name in before if name not in now)]
        changed = {name: (before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)}
        rows = self._count(self._table), self._count(self.again.table)
        rejects = self._count(self._own(quarantine_uri)), self._count(self._made(quarantine_uri))
        return Retyped(self.flow.name, changed, rows, rejects)

    def _replace(self) -> None:
        self.note.write(self._settings, replaces=True)
        self.archive_run.after_effect("note")
        self._overwrite(self._table, self.again.table)
        for uri_of in _OWN_TABLES:
            self._overwrite(self._own(uri_of), self._made(uri_of))
        self.note.remove()
        self.again.clear()

    def _overwrite(self, live: str, made: str) -> None:
        """Replace a table's rows and columns by those of another; delete its rows where there is no other."""
        spark = self.order.spark
        held, wanted = (describe_table(spark, uri) for uri in (live, made))
        if held is None and wanted is None:
            return
        session = session_for_batch(spark, batch_bytes=self.again.table_bytes)
        mark = metadata_text({UPKEEP: f"{self.flow.name}:{self.past.incarnation()}"})
        lost = unless_lost(self.flow.name, live, "replaced", next_step="Nothing is lost; run airflow-cdc retype again.")
        try:
            with lost, noted(session, mark):
                if wanted is None:
                    session.sql(f"DELETE FROM {sql.delta(live)}")
                else:
                    _bring_features(session, live, held, wanted)
                    rows = session.read.format("delta").load(made)
                    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(live)
        finally:
            release_session(session)
        self.archive_run.after_effect("replace")

    def _count(self, uri: str) -> int:
        return 0 if describe_table(self.order.spark, uri) is None else self.order.spark.read.format("delta").load(uri).count()

    def _refused(self, why: str) -> CdcError:
        return TableChangedError(
            f"Flow {self.flow.name}: table {self._table} cannot be made anew from the archive: {why}. It was left as it is.",
            next_step="Bring back what is missing, or set the flow's settings back, and run again; or rebuild the flow into a lake of its"
            " own (airflow-cdc rebuild) and compare.",
        )

    @cached_property
    def note(self) -> RetypeNote:
        return RetypeNote(*file_system(self.archive_run.lake), self.past.folder)

    @cached_property
    def again(self) -> FlowAgain:
        lake = retype_uri(self.archive_run.lake, self.past.folder)
        return FlowAgain(self.archive_run, self.flow, self.past, self.facts, lake, self._refused)

    @cached_property
    def _settings(self) -> str:
        """Digest of the settings that determine how events are read."""
        schema = self.facts.handed_over(self.flow.name)
        return short_hash(json.dumps([repr(self.flow), schema.to_json() if schema else None]))

    @property
    def _table(self) -> str:
        return spark_uri(str(self.checkpoint.table_in(self.archive_run.lake)))

    def _own(self, uri_of: Callable[[str, str], str]) -> str:
        return uri_of(spark_uri(self.archive_run.lake), self.past.folder)

    def _made(self, uri_of: Callable[[str, str], str]) -> str:
        return uri_of(spark_uri(self.again.lake), self.again.state.folder)


def _bring_features(session: SparkSession, live: str, held: Row | None, wanted: Row) -> None:
    """Enable on a table the Delta features that another table's types need, and record the forms of its texts: an overwrite does neither.

    :param held: Delta's description of the table; None where it does not exist, and the overwrite creates it with them.
    :param wanted: the same for the other table.
    """
    if held is None:
        return
    lacking = sorted({*(wanted["tableFeatures"] or ())} - {*(held["tableFeatures"] or ())})
    properties = {f"delta.feature.{name}": "supported" for name in lacking}
    if mode := (wanted["properties"] or {}).get(MODE_OF_MAPPING):
        properties[MODE_OF_MAPPING] = mode
    forms, known = ((table["properties"] or {}).get(FORMS_PROPERTY, "{}") for table in (wanted, held))
    if forms != known:
        properties[FORMS_PROPERTY] = forms
    if properties:
        assigned = ", ".join(f"{sql.text(name)} = {sql.text(value)}" for name, value in properties.items())
        session.sql(f"ALTER TABLE {sql.delta(live)} SET TBLPROPERTIES ({assigned})")
