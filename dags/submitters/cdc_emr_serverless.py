"""Apply an archive's pending change events to Delta tables on Amazon EMR Serverless.

It needs the connections ``cdc_archive_default`` (type CDC archive), ``cdc_lake_default`` (type CDC lake), both without keys, and
``aws_default``, which may start the job. The job runs with the application's execution role, which reads the archive and writes the lake.
"""

from __future__ import annotations

# [START howto_cdc_emr_serverless]
from datetime import datetime, timedelta, timezone

from airflow.providers.amazon.aws.operators.emr import EmrServerlessStartJobOperator
from airflow.sdk import DAG

from airflow_cdc.assets import tables_alias
from airflow_cdc.doc_links import with_links
from airflow_cdc.operators.report import CdcReportOperator
from airflow_cdc.sensors.archive import CdcArchiveSensor
from airflow_cdc.submitters.cdc_job import CdcJob

# Python, Spark 4.2 and this package are in the application's image.
job = CdcJob(application="local:///opt/cdc/lib/python3.11/site-packages/airflow_cdc/jobs/apply.py")

with DAG(
    dag_id="cdc_emr_serverless",
    description="Apply archived change events to Delta tables on EMR Serverless",
    doc_md=with_links(__doc__, "how-to/run-on-your-spark-service.md"),
    schedule="*/30 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
):
    # With nothing to do no job is started, and the run ends at once, skipped.
    wait_for_files = CdcArchiveSensor(task_id="wait_for_files", timeout=0, soft_fail=True)

    merge = EmrServerlessStartJobOperator(
        task_id="merge",
        application_id="{{ var.value.cdc_emr_application }}",
        execution_role_arn="{{ var.value.cdc_emr_role }}",
        job_driver=job.emr_serverless(),
        configuration_overrides={
            "monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": "{{ var.value.cdc_emr_logs }}"}},
        },
        waiter_delay=30,
        waiter_max_attempts=240,
        retries=2,
        retry_delay=timedelta(minutes=1),
        max_active_tis_per_dag=1,
    )

    report = CdcReportOperator(task_id="report", submitted_by="merge", outlets=[tables_alias()])

    wait_for_files >> merge >> report
# [END howto_cdc_emr_serverless]
