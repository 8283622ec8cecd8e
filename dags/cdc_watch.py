"""Look every quarter of an hour what of the lake's tables needs somebody, and mail it: tables that are behind or stopped, rejected
records, missing offsets, changed columns.

It needs the connections ``cdc_archive_default``, ``cdc_lake_default`` and ``smtp_default``, and no Spark. Its runs are red while anything
needs a look; a mail names each finding when it appears, and again after a day. Where merges themselves notify, this Dag sees what they
cannot: that no merge runs any more.
"""

from __future__ import annotations

# [START howto_cdc_watch]
from datetime import datetime, timezone

from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import DAG

from airflow_cdc.doc_links import with_links
from airflow_cdc.notifications.flows import CdcNotifier
from airflow_cdc.operators.health import CdcHealthOperator

mail = SmtpNotifier(from_email="airflow@example.com", to="data@example.com", subject="{{ cdc.title }}", html_content="{{ cdc.html }}")

with DAG(
    dag_id="cdc_watch",
    description="Report Delta tables that need somebody's look",
    doc_md=with_links(__doc__, "how-to/watch-it.md"),
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    tags=["cdc"],
):
    CdcHealthOperator(task_id="health", max_seconds=3600, on_failure_callback=CdcNotifier(mail))
# [END howto_cdc_watch]
