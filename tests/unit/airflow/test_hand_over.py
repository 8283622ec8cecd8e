"""How the job gets the storage's credentials, and where nobody else may see them."""

from __future__ import annotations

import json
import re
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

REPOSITORY = Path(__file__).parents[3]
KEY, SECRET = "AKIDKEY", "s3cr3t-key"
REPORT = {"ok": True, "archive": "a", "lake": "l", "flows": [], "control_topics": [], "ignored_files": [], "error": None}


@pytest.fixture
def handed(scene: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Archive on S3, lake on the local disk; spark-submit keeps what it was handed, and says nothing of its environment's connections."""
    temporary = scene.folder / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    scene.connect("store", conn_type="aws", login=KEY, password=SECRET)
    scene.connect("cdc_archive_default", conn_type="cdc_archive", host="s3://b/topics", extra={"storage_conn_id": "store"})
    scene.submit_by(f"""\
        #!{sys.executable}
        import json, os, sys
        from pathlib import Path
        sys.path.insert(0, {str(REPOSITORY)!r})
        from airflow_cdc.jobs.write_report import write_report
        from airflow_cdc.model.job_argument import read_argument
        sys.argv = [read_argument(text) for text in sys.argv]
        given = dict(zip(sys.argv, sys.argv[1:]))
        storage = given.get("--storage", "")
        is_file = storage.startswith("/")
        seen = {{
            "arguments": sys.argv,
            "environment": {{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_CONN_")}},
            "storage": json.loads(Path(storage).read_text() if is_file else storage or "null"),
            "modes": {{path.name: path.stat().st_mode for path in Path(storage).parent.iterdir()}} if is_file else {{}},
            "folder": Path(storage).parent.stat().st_mode if is_file else None,
        }}
        keyfile = (seen["storage"] or {{"spark": {{}}}})["spark"].get("spark.hadoop.fs.gs.auth.service.account.json.keyfile")
        seen["keyfile"] = Path(keyfile).read_text() if keyfile else None
        Path({str(scene._seen)!r}).write_text(json.dumps(seen))
        if "--report" in given and os.path.isabs(given["--report"]):
            write_report(given["--report"], json.loads({json.dumps(REPORT)!r}))
        """)
    return scene


def _seen(scene: Any) -> Any:
    return json.loads(scene._seen.read_text())


def test_credentials_go_by_a_file_that_only_this_user_reads(handed: Any, context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    operator = handed.merge()
    result = operator.execute(context)
    seen = _seen(handed)
    assert seen["storage"]["spark"]["spark.hadoop.fs.s3a.bucket.b.secret.key"] == SECRET
    assert seen["storage"]["file_systems"] == {"s3://b": {"key": KEY, "secret": SECRET}}
    assert stat.S_IMODE(seen["modes"]["storage.json"]) == 0o600
    assert stat.S_IMODE(seen["folder"]) == 0o700
    rendered = [getattr(operator, field) for field in operator.template_fields]
    shown = f"{seen['arguments']} {seen['environment']} {capsys.readouterr().out} {result} {rendered}"
    assert "--storage" in shown
    assert SECRET not in shown
    assert KEY not in shown
    assert list((handed.folder / "temporary").iterdir()) == []


def test_the_file_is_gone_after_a_job_that_never_read_it(handed: Any, context: Any) -> None:
    handed.submit_by("#!/bin/sh\nexit 1\n")
    with pytest.raises(Exception, match="Error code is: 1"):
        handed.merge().execute(context)
    assert list((handed.folder / "temporary").iterdir()) == []


def test_sparks_own_logs_hide_what_they_are_given(handed: Any, context: Any) -> None:
    handed.merge(conf={"spark.redaction.regex": "mine"}).execute(context)
    hidden = re.compile(_seen(handed)["storage"]["spark"]["spark.redaction.regex"])
    names = ["fs.s3a.bucket.b.access.key", "fs.s3a.bucket.b.secret.key", "fs.s3a.bucket.b.session.token", "my.mine"]
    names += [f"fs.azure.{name}.a.dfs.core.windows.net" for name in ("account.key", "account.oauth2.client.secret", "sas.fixed.token")]
    assert [name for name in names if not hidden.search(f"spark.hadoop.{name}")] == []
    assert not hidden.search("spark.hadoop.fs.s3a.bucket.b.endpoint")


def test_a_pasted_google_key_is_a_private_file_beside_it(handed: Any, context: Any) -> None:
    handed.connect("store", conn_type="google_cloud_platform", extra={"keyfile_dict": json.dumps({"private_key": SECRET})})
    handed.connect("cdc_archive_default", conn_type="cdc_archive", host="gs://b/topics", extra={"storage_conn_id": "store"})
    handed.merge().execute(context)
    seen = _seen(handed)
    assert json.loads(seen["keyfile"]) == {"private_key": SECRET}
    assert {stat.S_IMODE(mode) for mode in seen["modes"].values()} == {0o600}
    # Executors on other machines would look for it in vain.
    handed.connect("spark_default", conn_type="spark", host="spark://m:7077")
    with pytest.raises(AirflowFailException, match=r"executors of spark://m:7077.*key_path"):
        handed.merge().execute(context)


def test_where_a_store_is_may_be_seen(handed: Any, context: Any) -> None:
    handed.connect("store", conn_type="aws", extra={"endpoint_url": "http://minio:9000"})
    handed.merge().execute(context)
    seen = _seen(handed)
    assert seen["storage"]["spark"]["spark.hadoop.fs.s3a.bucket.b.endpoint"] == "http://minio:9000"
    assert not next(argument for argument in seen["arguments"] if "minio" in argument).startswith("/")


def test_credentials_do_not_travel_into_a_cluster(handed: Any, context: Any) -> None:
    handed.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    with pytest.raises(AirflowFailException, match=r"driver runs in the cluster.*instance role, Hadoop credential provider") as refused:
        handed.merge(durable=False).execute(context)
    assert SECRET not in str(refused.value)
    assert not handed._seen.exists()
    handed.connect("store", conn_type="aws", extra={"region_name": "eu-west-3"})
    handed.merge(durable=False).execute(context)
    assert _seen(handed)["storage"]["spark"] == {"spark.hadoop.fs.s3a.bucket.b.endpoint.region": "eu-west-3"}


def test_a_user_of_hdfs_is_a_variable(handed: Any, context: Any) -> None:
    handed.connect("store", conn_type="hdfs", login="etl")
    handed.connect("cdc_archive_default", conn_type="cdc_archive", host="hdfs://n:8020/topics", extra={"storage_conn_id": "store"})
    handed.merge().execute(context)
    assert _seen(handed)["environment"]["HADOOP_USER_NAME"] == "etl"


def test_without_storage_connections_the_job_gets_no_storage_settings(scene: Any, context: Any) -> None:
    scene.merge().execute(context)
    assert not {"--storage", "--layout", "--format"} & set(scene.arguments)
    assert "spark.redaction.regex" not in scene.conf


def test_the_job_knows_what_the_archive_shall_hold(scene: Any, context: Any) -> None:
    scene.connect("cdc_archive_default", conn_type="cdc_archive", host=str(scene.archive), extra={"format": "avro"})
    scene.merge().execute(context)
    assert {("--layout", "auto"), ("--format", "avro")} <= scene.pairs


def test_only_known_folders_hold_the_file(handed: Any, context: Any) -> None:
    handed.merge().execute(context)
    given = dict(zip(_seen(handed)["arguments"], _seen(handed)["arguments"][1:], strict=False))
    assert Path(given["--storage"]).parent == Path(given["--report"]).parent
