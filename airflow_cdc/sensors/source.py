"""CdcSourceSensor: compare a lake's tables with their source database, and wait until every difference is decided."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, BaseSensorOperator, PokeReturnValue

from airflow_cdc.hooks.archive import CdcArchiveHook, table_globs
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.links.tasks import FlowLink
from airflow_cdc.triggers.look import failure_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_cdc.model.state.comparison import FlowComparison
    from airflow_cdc.source_comparison import SourceComparison


class CdcSourceSensor(BaseSensorOperator):
    """Compare the tables of a lake with those of their source, PostgreSQL, MySQL or MariaDB, and fail when one differs.

    Each side hashes its own rows, so little crosses the network: of buckets of a thousand rows the sums, of those that differ the rows'
    hashes. It starts no Spark. A row that differs may be under way. So it is looked at again at each poke, until both sides are alike, or
    the archive has brought what the source committed ``settle_seconds`` later and nothing of the flow is pending: then it differs, and the
    task fails with the tables and some keys. What the lake keeps of each comparison, the page shows: ``verified_through`` is when the last
    one began that found both sides alike.

    It returns ``{"equal": […], "undecided": {"server.db.orders": 2}, "not_compared": {"server.db.log": "…"}}``. A flow that
    was compared longest ago comes first, so a run that ends early loses no table for ever; a retry goes on where the last try ended.

    :param archive_conn_id: connection of the archive, whose ``source_conn_id`` names the source database's. (templated)
    :param lake_conn_id: connection of the lake. (templated)
    :param tables: globs of flow names, as a sequence or one text with commas; none: every flow. (templated)
    :param connector: ``source.connector`` of the events, where the connection's type does not show it.
    :param settle_seconds: seconds that the sink may keep events before it writes a file, at most.
    :param patience: seconds after which the task ends although rows are undecided; the next run compares them anew.
    :param kwargs: Airflow's arguments of sensors. By default the task gives its slot up between two looks (``mode="reschedule"``).
    """

    template_fields: Sequence[str] = ("archive_conn_id", "lake_conn_id", "tables")
    operator_extra_links = (FlowLink(),)
    ui_color = "#c8dce6"

    def __init__(
        self,
        *,
        archive_conn_id: str = CdcArchiveHook.default_conn_name,
        lake_conn_id: str = CdcLakeHook.default_conn_name,
        tables: str | Sequence[str] | None = None,
        connector: str | None = None,
        settle_seconds: float = 900,
        patience: float = 7200,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"mode": "reschedule", "poke_interval": 600, **kwargs})
        self.archive_conn_id = archive_conn_id
        self.lake_conn_id = lake_conn_id
        self.tables = tables
        self.connector = connector
        self.settle_seconds = settle_seconds
        self.patience = patience

    def poke(self, context: Context) -> PokeReturnValue:
        """Compare what this run has not compared, and look at open rows again."""
        instance = context["ti"]
        # Two tasks of one run may compare one lake with two sources.
        of_run = f"{instance.dag_id}/{instance.task_id}/{instance.map_index} {instance.run_id}"
        try:
            found = self._look(f"{of_run} {instance.try_number}", of_run)
        except Exception as error:
            failure = failure_of(error)
            raise (AirflowException if failure["transient"] else AirflowFailException)(failure["message"]) from error
        if any(each.open for each in found) and self._began(found) + self.patience > time.time():
            return PokeReturnValue(is_done=False)
        refused = [each for each in found if each.error]
        if different := [each for each in found if each.different]:
            raise AirflowFailException("\n".join(["Tables differ from their source.", *map(_line, [*different, *refused])]))
        if refused:
            raise AirflowException("\n".join(["The source refused tables.", *map(_line, refused)]))
        if not any(each.at for each in found):
            raise AirflowFailException("\n".join(["Nothing was compared.", *map(_line, found)]))
        return PokeReturnValue(is_done=True, xcom_value=_result(found))

    def _look(self, run: str, of_run: str) -> list[FlowComparison]:
        comparison = self._comparison()
        found = []
        for before in comparison.flows():
            # An earlier try of this run need not be repeated, unless somebody cleared the task to see whether its differences are gone.
            is_done = before.run == run or (before.run.rpartition(" ")[0] == of_run and not before.different and not before.error)
            after = comparison.compare(before, run) if not is_done else comparison.look_again(before) if before.open else before
            if after is not before:
                self.log.info("%s", _line(after))
            found.append(after)
        return found

    def _comparison(self) -> SourceComparison:
        # Not where Dags are parsed: it opens tables.
        from airflow_cdc.hooks.source_catalogue import SourceCatalogue, source_of
        from airflow_cdc.source_comparison import SourceComparison

        source = SourceCatalogue(source_of(self.archive_conn_id), self.connector)
        archive, lake = CdcArchiveHook(self.archive_conn_id), CdcLakeHook(self.lake_conn_id)
        return SourceComparison(archive, lake, source, tuple(table_globs(self.tables)), self.settle_seconds)

    @staticmethod
    def _began(found: Sequence[FlowComparison]) -> float:
        return min((each.at for each in found if each.open), default=0) / 1000


def _line(found: FlowComparison) -> str:
    if found.skipped:
        return f"{found.flow}: not compared: {found.skipped}"
    if found.error:
        return f"{found.flow}: {found.error}"
    counts = f"{found.table_rows:,} rows against {found.source_rows:,}"
    left = f"; not compared: {', '.join(found.left_out)}" if found.left_out else ""
    if found.different:
        keys = "; ".join(", ".join(f"{name} {value}" for name, value in key.items()) for key in found.sample)
        seen = f"{found.flow}: {found.different:,} rows differ, for example {keys}{left}."
        return f"{seen} Next step: see what came of one by airflow-cdc key; rebuild the flow into another lake, and compare that."
    if found.open or found.is_cut:
        return f"{found.flow}: {len(found.open):,}{' or more' if found.is_cut else ''} rows are undecided; {counts}{left}"
    return f"{found.flow}: equal; {counts}{left}"


def _result(found: Sequence[FlowComparison]) -> dict[str, Any]:
    return {
        "equal": [each.flow for each in found if each.is_equal],
        "undecided": {each.flow: len(each.open) + each.is_cut for each in found if each.open or each.is_cut},
        "not_compared": {each.flow: each.skipped for each in found if each.skipped},
    }
