"""Apply an archive's pending change events to Delta tables by steps on an Amazon EMR cluster.

It needs the connections ``cdc_archive_default`` (type CDC archive), ``cdc_lake_default`` (type CDC lake), both without keys, and
``aws_default``, which may add steps. The job runs with the cluster's instance profile, or with the step's role.
"""

from __future__ import annotations

# [START howto_cdc_emr]
from datetime import datetime, timedelta, timezone

from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator
from airflow.sdk import DAG

from airflow_cdc.assets import tables_alias
from airflow_cdc.doc_links import with_links
from airflow_cdc.operators.report import CdcReportOperator
from airflow_cdc.sensors.archive import CdcArchiveSensor
from airflow_cdc.submitters.cdc_job import CdcJob

job = CdcJob(
    application="{{ var.value.cdc_code }}/apply.py",
    py_files=["{{ var.value.cdc_code }}/airflow_cdc.zip"],
    # A bootstrap action made this Python, with the package's dependencies.
    conf={"spark.yarn.appMasterEnv.PYSPARK_PYTHON": "/opt/cdc/bin/python"},
)

with DAG(
    dag_id="cdc_emr",
    description="Apply archived change events to Delta tables on an EMR cluster",
    doc_md=with_links(__doc__, "how-to/run-on-your-spark-service.md"),
    schedule="*/30 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
):
    wait_for_files = CdcArchiveSensor(task_id="wait_for_files", timeout=0, soft_fail=True)

    merge = EmrAddStepsOperator(
        task_id="merge",
        job_flow_id="{{ var.value.cdc_emr_cluster }}",
        steps=[job.emr_step()],
        wait_for_completion=True,
        waiter_max_attempts=240,
        retries=2,
        retry_delay=timedelta(minutes=1),
        max_active_tis_per_dag=1,
    )

    report = CdcReportOperator(task_id="report", submitted_by="merge", outlets=[tables_alias()])

    wait_for_files >> merge >> report
# [END howto_cdc_emr]
