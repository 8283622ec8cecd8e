"""Apply an archive's pending change events to Delta tables by a Databricks job.

It needs the connections ``cdc_archive_default`` (type CDC archive), ``cdc_lake_default`` (type CDC lake), both without keys, and
``databricks_default``, which may submit runs. The job runs with the cluster's instance profile or service account.
"""

from __future__ import annotations

# [START howto_cdc_databricks]
from datetime import datetime, timedelta, timezone

from airflow.providers.databricks.operators.databricks import DatabricksSubmitRunOperator
from airflow.sdk import DAG

from airflow_cdc.assets import tables_alias
from airflow_cdc.doc_links import with_links
from airflow_cdc.operators.report import CdcReportOperator
from airflow_cdc.sensors.archive import CdcArchiveSensor
from airflow_cdc.submitters.cdc_job import CdcJob

job = CdcJob(
    application="{{ var.value.cdc_code }}/apply.py",
    py_files=["{{ var.value.cdc_code }}/airflow_cdc-0.1.0-py3-none-any.whl"],
)
cluster = {
    "spark_version": "{{ var.value.cdc_runtime }}",
    "node_type_id": "{{ var.value.cdc_node_type }}",
    "num_workers": 2,
    "aws_attributes": {"instance_profile_arn": "{{ var.value.cdc_instance_profile }}"},
}

with DAG(
    dag_id="cdc_databricks",
    description="Apply archived change events to Delta tables on Databricks",
    doc_md=with_links(__doc__, "how-to/run-on-your-spark-service.md"),
    schedule="*/30 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
):
    wait_for_files = CdcArchiveSensor(task_id="wait_for_files", timeout=0, soft_fail=True)

    merge = DatabricksSubmitRunOperator(
        task_id="merge",
        tasks=[job.databricks(new_cluster=cluster)],
        retries=2,
        retry_delay=timedelta(minutes=1),
        max_active_tis_per_dag=1,
    )

    report = CdcReportOperator(task_id="report", submitted_by="merge", outlets=[tables_alias()])

    wait_for_files >> merge >> report
# [END howto_cdc_databricks]
