"""Apply an archive's pending change events to Delta tables by an AWS Glue job.

It needs the connections ``cdc_archive_default`` (type CDC archive), ``cdc_lake_default`` (type CDC lake), both without keys, and
``aws_default``, which may make and start the job. The job runs with the role in the variable ``cdc_glue_role``, which reads the archive and
writes the lake.
"""

from __future__ import annotations

# [START howto_cdc_glue]
from datetime import datetime, timedelta, timezone

from airflow.providers.amazon.aws.operators.glue import GlueJobOperator
from airflow.sdk import DAG

from airflow_cdc.assets import tables_alias
from airflow_cdc.doc_links import with_links
from airflow_cdc.operators.report import CdcReportOperator
from airflow_cdc.sensors.archive import CdcArchiveSensor
from airflow_cdc.submitters.cdc_job import CdcJob

job = CdcJob(
    release="glue-6.0",
    application="{{ var.value.cdc_code }}/apply.py",
    py_files=["{{ var.value.cdc_code }}/airflow_cdc-0.1.0-py3-none-any.whl"],
)

with DAG(
    dag_id="cdc_glue",
    description="Apply archived change events to Delta tables by AWS Glue",
    doc_md=with_links(__doc__, "how-to/run-on-your-spark-service.md"),
    schedule="*/30 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
):
    # With nothing to do no job is started, and the run ends at once, skipped.
    wait_for_files = CdcArchiveSensor(task_id="wait_for_files", timeout=0, soft_fail=True)

    merge = GlueJobOperator(
        task_id="merge",
        job_name="airflow-cdc",
        iam_role_arn="{{ var.value.cdc_glue_role }}",
        create_job_kwargs={"GlueVersion": "6.0", "WorkerType": "G.1X", "NumberOfWorkers": 2},
        # What this package needs to read the store, if Glue's release lacks it.
        **job.glue({"--additional-python-modules": "fsspec,pyyaml,s3fs"}),
        retries=2,
        retry_delay=timedelta(minutes=1),
        max_active_tis_per_dag=1,
    )

    report = CdcReportOperator(task_id="report", submitted_by="merge", outlets=[tables_alias()])

    wait_for_files >> merge >> report
# [END howto_cdc_glue]
