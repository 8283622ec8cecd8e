"""Repair tables from the archive, by hand: read a range again, replay the quarantine, give the types that are known now, or rebuild.

It needs the connections of ``cdc_merge``, or others that its form names, and for a rebuild into a lake of its own one more (type CDC
lake). Of a repair and a merge that write one flow at the same time, one waits for the other; after ten minutes it fails, and is retried.

A rebuild reads the whole archive, so it waits until somebody approves it (*Required Actions*).
"""

from __future__ import annotations

# [START howto_cdc_repair]
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, task

from airflow_cdc.doc_links import with_links
from airflow_cdc.model.errors import RejectReason
from airflow_cdc.model.position.as_of import AS_OF_PATTERN
from airflow_cdc.operators.rebuild import CdcRebuildOperator
from airflow_cdc.operators.replay import CdcReplayOperator
from airflow_cdc.operators.reprocess import CdcReprocessOperator
from airflow_cdc.operators.retype import CdcRetypeOperator

MODES = {
    "reprocess": {"from_position", "to_position", "only_plan"},
    "replay": {"reasons", "only_plan"},
    "retype": {"only_plan"},
    "rebuild": {"as_of", "into_lake_conn_id"},
}


def position(title: str, section: str, description: str) -> Param:
    """Return a field for a moment: a text, because browsers lose the last digits of large numbers."""
    spelled = f"{description} A commit number, an LSN, file:pos, or a time such as 2026-11-21T09:30:00Z."
    return Param(None, type=["null", "string"], pattern=AS_OF_PATTERN, title=title, section=section, description=spelled)


with DAG(
    dag_id="cdc_repair",
    description="Reprocess, replay, retype or rebuild Delta tables from the archive",
    doc_md=with_links(__doc__, "how-to/rebuild-and-reprocess.md", "how-to/replay-quarantine.md"),
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    params={
        "archive_conn_id": Param("cdc_archive_default", type="string", minLength=1, title="Archive", description="Its connection."),
        "lake_conn_id": Param("cdc_lake_default", type="string", minLength=1, title="Lake", description="Its connection."),
        "mode": Param(
            "reprocess",
            type="string",
            enum=list(MODES),
            title="Mode",
            values_display={
                "reprocess": "Reprocess: give rows back that were lost",
                "replay": "Replay: merge what the quarantine holds",
                "retype": "Retype: make tables anew with the types that are known now",
                "rebuild": "Rebuild: make tables anew in another lake",
            },
        ),
        # No default: nobody repairs every table by a slip of the hand.
        "tables": Param(
            type="array",
            items={"type": "string", "pattern": r"[^\s,]"},
            minItems=1,
            title="Tables",
            description="One flow a line, * and ? allowed; * alone is every flow of the lake.",
        ),
        "from_position": position("From", "Reprocess", "First transaction; empty: from the beginning."),
        "to_position": position("To", "Reprocess", "Last transaction; empty: to the end of what is applied."),
        "reasons": Param(
            [],
            type="array",
            items={"type": "string", "enum": [reason.value for reason in RejectReason]},
            examples=[reason.value for reason in RejectReason],
            title="Reasons",
            section="Replay",
            description="Only what was set aside for one of these. Empty: all.",
        ),
        "only_plan": Param(
            default=False,
            type="boolean",
            title="Only plan",
            section="Reprocess, replay or retype",
            description="Report what would be done; change nothing.",
        ),
        "as_of": position("As of", "Rebuild", "Last transaction; empty: everything."),
        "into_lake_conn_id": Param(
            None,
            type=["null", "string"],
            title="Into lake",
            section="Rebuild",
            description="Connection of the new lake. Empty: a folder below the live lake's _cdc/rebuilds.",
        ),
        "needs_approval": Param(
            default=True,
            type="boolean",
            title="Needs approval",
            section="Rebuild",
            description="Wait until somebody approves the rebuild.",
        ),
    },
    tags=["cdc"],
):

    @task.branch(retries=0)
    def choose(params: Any = None) -> str:
        """Return the task that comes next; refuse fields of other modes: who fills in a range believes that it counts."""
        mode = params["mode"]
        foreign = sorted(name for names in MODES.values() for name in names - MODES[mode] if params[name])
        if foreign:
            raise AirflowFailException(f"Mode {mode} takes no {', '.join(foreign)}; leave that out, or choose another mode.")
        return "approve" if mode == "rebuild" and params["needs_approval"] else str(mode)

    tables = "{{ params.tables | join(',') }}"
    places = {"archive_conn_id": "{{ params.archive_conn_id }}", "lake_conn_id": "{{ params.lake_conn_id }}"}

    approve = ApprovalOperator(
        task_id="approve",
        subject="Rebuild {{ params.tables | join(', ') }}?",
        body="The whole archive of these flows of {{ params.lake_conn_id }} is read{{ ', up to ' ~ params.as_of if params.as_of else '' }},"
        " and their tables are made in {{ params.into_lake_conn_id or 'a folder of this run' }}. The live tables are not touched.",
        # Airflow 3.1's operator asks for the values of a run when the Dag is parsed.
        params={"tables": Param([], type="array")},
    )
    rebuild = CdcRebuildOperator(
        task_id="rebuild",
        tables=tables,
        **places,
        as_of="{{ params.as_of or '' }}",
        into_lake_conn_id="{{ params.into_lake_conn_id or '' }}",
        max_active_tis_per_dag=1,
        # It comes behind the choice or behind the approval.
        trigger_rule="none_failed_min_one_success",
    )

    choose() >> [
        approve,
        CdcReprocessOperator(
            task_id="reprocess",
            tables=tables,
            **places,
            from_position="{{ params.from_position or '' }}",
            to_position="{{ params.to_position or '' }}",
            only_plan="{{ params.only_plan }}",
            max_active_tis_per_dag=1,
        ),
        CdcReplayOperator(
            task_id="replay",
            tables=tables,
            **places,
            reasons="{{ params.reasons | join(',') }}",
            only_plan="{{ params.only_plan }}",
            max_active_tis_per_dag=1,
        ),
        CdcRetypeOperator(
            task_id="retype",
            tables=tables,
            **places,
            only_plan="{{ params.only_plan }}",
            max_active_tis_per_dag=1,
        ),
        rebuild,
    ]
    approve >> rebuild
# [END howto_cdc_repair]
