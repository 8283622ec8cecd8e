"""What OpenLineage gets of a merge: by the facets themselves, and by the real provider's events in a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import Asset
from openlineage.client.naming import dataset as naming

from airflow_cdc.assets import table_asset
from airflow_cdc.lineage import asset_dataset, dataset_name
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts
from airflow_cdc.model.report.reprocessing import FlowReprocess, ReprocessReport
from airflow_cdc.operators.rebuild import CdcRebuildOperator
from airflow_cdc.operators.replay import CdcReplayOperator
from airflow_cdc.operators.reprocess import CdcReprocessOperator

TOPIC, OTHER_TOPIC = "server.db.orders", "server.db.customers"
REPOSITORY = Path(__file__).parents[3]
TERMINAL = {"type": "SchemaChangeError", "message": "Column total shrank.", "next_step": "Widen it.", "transient": False}


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://bucket/lake/t", naming.S3("bucket", "lake/t")),
        ("s3a://bucket/lake/t/", naming.S3("bucket", "lake/t")),
        ("gs://bucket/t", naming.GCS("bucket", "t")),
        ("abfss://box@account.dfs.core.windows.net/lake/t", naming.ABFSS("box", "account", "/lake/t")),
        ("hdfs://node:8020/lake/t", naming.HDFS("node", "8020", "/lake/t")),
        ("/data/lake/t", naming.LocalFileSystem("/data/lake/t")),
        ("file:///data/lake/t", naming.LocalFileSystem("/data/lake/t")),
        ("file:/data/lake/t", naming.LocalFileSystem("/data/lake/t")),
    ],
)
def test_datasets_have_the_names_of_the_specification(uri: str, expected: Any) -> None:
    assert dataset_name(uri) == (expected.get_namespace(), expected.get_name())


def test_each_changed_table_has_its_topic_its_columns_and_its_version(scene: Any, context: Any) -> None:
    scene.land("0000000000")
    scene.land("0000000000", topic=OTHER_TOPIC)
    operator = scene.merge()
    assert operator.get_openlineage_facets_on_complete(None) is None
    operator.execute(context)
    lineage = operator.get_openlineage_facets_on_complete(None)
    assert [(item.namespace, item.name) for item in lineage.inputs] == [
        ("file", f"{scene.archive}/{topic}") for topic in (OTHER_TOPIC, TOPIC)
    ]
    orders = lineage.outputs[1]
    assert (orders.namespace, orders.name) == ("file", f"{scene.lake}/{TOPIC}")
    assert {field.name: field.type for field in orders.facets["schema"].fields} == {
        "id": "INT",
        "document": "STRING",
        "total": "DECIMAL(10,2)",
    }
    sources = {
        column: [(item.name, item.field, item.transformations[0].subtype) for item in fields.inputFields]
        for column, fields in orders.facets["columnLineage"].fields.items()
    }
    topic = f"{scene.archive}/{TOPIC}"
    # total is a document column: no event has it.
    assert sources == {
        "id": [(topic, "id", "IDENTITY")],
        "document": [(topic, "document", "IDENTITY")],
        "total": [(topic, "document", "TRANSFORMATION")],
    }
    assert orders.facets["version"].datasetVersion == "0"
    assert orders.facets["storage"].storageLayer == "delta"
    assert orders.outputFacets["outputStatistics"].rowCount == 1


def test_a_run_that_changed_nothing_wrote_nothing(scene: Any, context: Any) -> None:
    scene.land("0000000000")
    scene.merge().execute(context)
    operator = scene.merge()
    operator.execute(context)
    lineage = operator.get_openlineage_facets_on_complete(None)
    assert (lineage.inputs, lineage.outputs) == ([], [])


def test_a_run_that_failed_for_one_table_wrote_the_others(scene: Any, context: Any) -> None:
    broken = f'FlowOutcome("z", FlowStatus.FAILED, "l/z", (), {TERMINAL!r})'
    scene.submit_by(scene.spark_submit.read_text().replace("report = ApplyReport(", f"outcomes.append({broken})\nreport = ApplyReport("))
    scene.land("0000000000")
    operator = scene.merge()
    with pytest.raises(AirflowFailException):
        operator.execute(context)
    assert [item.name for item in operator.get_openlineage_facets_on_complete(None).outputs] == [f"{scene.lake}/{TOPIC}"]


def batch(number: int, **fields: Any) -> BatchReport:
    return BatchReport(TOPIC, number, 1, 9, EventCounts(read=3, merged=3), RowCounts(inserted=1, updated=2), **fields)


@pytest.mark.parametrize("kind", [CdcReplayOperator, CdcReprocessOperator])
def test_reading_again_names_the_tables_that_it_changed_at_the_place_that_the_lake_knows(scene: Any, context: Any, kind: type[Any]) -> None:
    scene.submit_by(scene.spark_submit.read_text().replace('job.lake + "/" + topic', '"s3://elsewhere/sales/" + topic'))
    scene.land("0000000000")
    scene.merge().execute(context)
    done = FlowReprocess(TOPIC, batch(2), (batch(2, table_version=7), batch(3, table_version=8)))
    right_already = FlowReprocess(OTHER_TOPIC, batch(2), (batch(2),))
    scene.submit_leaves(ReprocessReport("/archive", "/lake", flows=(done, right_already)).to_json(), exit_code=0)
    operator = kind(task_id="again", spark_binary=str(scene.spark_submit))
    assert operator.get_openlineage_facets_on_complete(None) is None
    operator.execute(context)
    lineage = operator.get_openlineage_facets_on_complete(None)
    assert [(item.namespace, item.name) for item in lineage.inputs] == [("file", f"/archive/{TOPIC}")]
    (table,) = lineage.outputs
    assert (table.namespace, table.name) == ("s3://elsewhere", f"sales/{TOPIC}")
    assert table.facets["version"].datasetVersion == "8"
    assert set(table.facets) == {"version", "storage"}
    assert table.outputFacets["outputStatistics"].rowCount == 6


def test_a_dry_run_wrote_nothing_and_a_state_that_cannot_be_read_fails_no_task(
    scene: Any, context: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def replayed(*flows: FlowReprocess) -> Any:
        scene.submit_leaves(ReprocessReport("/archive", "/lake", flows=flows).to_json(), exit_code=0)
        operator = CdcReplayOperator(task_id="again", spark_binary=str(scene.spark_submit))
        operator.execute(context)
        return operator.get_openlineage_facets_on_complete(None)

    assert replayed(FlowReprocess(TOPIC, batch(2))).outputs == []
    checkpoint = scene.lake / "_cdc" / "flows" / TOPIC / "checkpoint.json"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_text("{")
    assert replayed(FlowReprocess(TOPIC, batch(2), (batch(2, table_version=7),))) is None
    assert "There is no lineage of this task: StateUnreadableError" in capsys.readouterr().out


def test_a_rebuild_reads_the_archive_and_writes_the_new_lakes_tables(scene: Any, context: Any) -> None:
    columns = {"id": "INT"}
    flow = FlowOutcome(TOPIC, FlowStatus.APPLIED, f"/new/{TOPIC}", (batch(1, table_version=0),), table_version=0, columns=columns)
    scene.submit_leaves(ApplyReport("/archive", "/new", (flow,)).to_json(), exit_code=0)
    operator = CdcRebuildOperator(task_id="rebuild", spark_binary=str(scene.spark_submit))
    operator.execute(context)
    lineage = operator.get_openlineage_facets_on_complete(None)
    assert [(item.name, [field.name for field in item.facets["schema"].fields]) for item in lineage.outputs] == [(f"/new/{TOPIC}", ["id"])]
    assert [item.name for item in lineage.inputs] == [f"/archive/{TOPIC}"]


def test_a_tables_asset_is_the_dataset_at_the_place_that_the_lake_knows(scene: Any, context: Any) -> None:
    scene.submit_by(scene.spark_submit.read_text().replace('job.lake + "/" + topic', '"s3://elsewhere/sales/" + topic'))
    scene.land("0000000000")
    scene.merge().execute(context)
    merged, never = asset_dataset(table_asset(TOPIC), None), asset_dataset(table_asset("never.merged"), None)
    assert merged
    assert never
    assert (merged.namespace, merged.name) == ("s3://elsewhere", f"sales/{TOPIC}")
    assert (never.namespace, never.name) == ("file", f"{scene.lake}/never.merged")
    assert asset_dataset(Asset("x-cdc://archive/cdc_archive_default"), None) is None


DAG_FILE = """
from airflow.sdk import DAG
from airflow_cdc.operators.merge import CdcMergeOperator
with DAG("cdc_lineage", schedule=None):
    CdcMergeOperator(task_id="merge", spark_binary={spark_submit!r})
"""


@pytest.mark.deep
def test_the_provider_emits_it_and_spark_gets_its_parent_run(scene: Any, airflow_database: None) -> None:
    scene.land("0000000000")
    events = scene.folder / "events.json"
    dags = scene.folder / "dags"
    dags.mkdir()
    (dags / "cdc_lineage.py").write_text(DAG_FILE.format(spark_submit=str(scene.spark_submit)))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "file", "log_file_path": str(events), "append": True}),
        "AIRFLOW__OPENLINEAGE__NAMESPACE": "here",
        "AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO": "True",
    }
    command = [sys.executable, "-m", "airflow", "dags", "test", "cdc_lineage"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    complete = next(line for line in lines if line["eventType"] == "COMPLETE" and line["job"]["name"] == "cdc_lineage.merge")
    assert {item["name"] for item in complete["inputs"]} >= {f"{scene.archive}/{TOPIC}"}
    (output,) = complete["outputs"]
    assert (output["namespace"], output["name"]) == ("file", f"{scene.lake}/{TOPIC}")
    assert set(output["facets"]["columnLineage"]["fields"]) == {"id", "document", "total"}
    assert output["facets"]["version"]["datasetVersion"] == "0"
    # Beside what Delta needs, which our own handling of conf adds before.
    assert scene.conf["spark.openlineage.parentJobName"] == "cdc_lineage.merge"
    assert scene.conf["spark.openlineage.parentJobNamespace"] == "here"
    assert scene.conf["spark.openlineage.parentRunId"] == complete["run"]["runId"]
    assert "DeltaSparkSessionExtension" in scene.conf["spark.sql.extensions"]
