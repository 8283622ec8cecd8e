"""Apply an archive's pending change events to Delta tables on a Google Dataproc cluster.

It needs the connections ``cdc_archive_default`` (type CDC archive), ``cdc_lake_default`` (type CDC lake), both without keys, and
``google_cloud_default``, which may submit jobs. The job runs with the cluster's service account.
"""

from __future__ import annotations

# [START howto_cdc_dataproc]
from datetime import datetime, timedelta, timezone

from airflow.providers.google.cloud.operators.dataproc import DataprocSubmitJobOperator
from airflow.sdk import DAG

from airflow_cdc.assets import tables_alias
from airflow_cdc.doc_links import with_links
from airflow_cdc.operators.report import CdcReportOperator
from airflow_cdc.sensors.archive import CdcArchiveSensor
from airflow_cdc.submitters.cdc_job import CdcJob

job = CdcJob(
    application="{{ var.value.cdc_code }}/apply.py",
    # Dataproc takes no .whl: this is the wheel under another name.
    py_files=["{{ var.value.cdc_code }}/airflow_cdc.zip"],
)

with DAG(
    dag_id="cdc_dataproc",
    description="Apply archived change events to Delta tables on Dataproc",
    doc_md=with_links(__doc__, "how-to/run-on-your-spark-service.md"),
    schedule="*/30 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
):
    wait_for_files = CdcArchiveSensor(task_id="wait_for_files", timeout=0, soft_fail=True)

    merge = DataprocSubmitJobOperator(
        task_id="merge",
        project_id="{{ var.value.cdc_project }}",
        region="{{ var.value.cdc_region }}",
        job=job.dataproc("{{ var.value.cdc_cluster }}"),
        retries=2,
        retry_delay=timedelta(minutes=1),
        max_active_tis_per_dag=1,
    )

    report = CdcReportOperator(task_id="report", submitted_by="merge", outlets=[tables_alias()])

    wait_for_files >> merge >> report
# [END howto_cdc_dataproc]
