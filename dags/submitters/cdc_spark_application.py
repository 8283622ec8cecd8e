"""Apply an archive's pending change events to Delta tables by a SparkApplication on Kubernetes.

It needs the connections ``cdc_archive_default`` (type CDC archive), ``cdc_lake_default`` (type CDC lake), both without keys, and
``kubernetes_default``, which may create objects of the Kubeflow Spark operator. The job runs with the driver's service account.
"""

from __future__ import annotations

# [START howto_cdc_spark_application]
from datetime import datetime, timedelta, timezone

from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator
from airflow.sdk import DAG

from airflow_cdc.assets import tables_alias
from airflow_cdc.doc_links import with_links
from airflow_cdc.operators.report import CdcReportOperator
from airflow_cdc.sensors.archive import CdcArchiveSensor
from airflow_cdc.submitters.cdc_job import CdcJob

# Everything is in the image: no pod downloads jars.
job = CdcJob(
    application="local:///opt/cdc/lib/python3.11/site-packages/airflow_cdc/jobs/apply.py",
    packages=[],
    conf={"spark.pyspark.python": "/opt/cdc/bin/python"},
)

with DAG(
    dag_id="cdc_spark_application",
    description="Apply archived change events to Delta tables on Kubernetes",
    doc_md=with_links(__doc__, "how-to/run-on-your-spark-service.md"),
    schedule="*/30 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
):
    wait_for_files = CdcArchiveSensor(task_id="wait_for_files", timeout=0, soft_fail=True)

    merge = SparkKubernetesOperator(
        task_id="merge",
        namespace="spark",
        template_spec=job.spark_application(
            image="{{ var.value.cdc_image }}",
            driver={"cores": 2, "memory": "4g", "serviceAccount": "cdc"},
            executor={"cores": 2, "memory": "4g", "instances": 2, "serviceAccount": "cdc"},
        ),
        retries=2,
        retry_delay=timedelta(minutes=1),
        max_active_tis_per_dag=1,
    )

    report = CdcReportOperator(task_id="report", submitted_by="merge", outlets=[tables_alias()])

    wait_for_files >> merge >> report
# [END howto_cdc_spark_application]
