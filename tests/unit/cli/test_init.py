"""``airflow-cdc init``: the files that it writes can be used as they are, and it names what it could not know."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
import yaml

from airflow_cdc.dags_file import read_dags_file
from airflow_cdc.flows_file import read_flows
from tests.support.events import TOPIC, numbered, record, sqlserver, write_records
from tests.unit.cli.conftest import CLOSED_LATE, Run

pytestmark = CLOSED_LATE
ANN = {"id": 1, "na: me": "ann"}
NO_KEY = "server1.testDB.dbo.log"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    keyless = sqlserver("r", commit=2, after=ANN, topic=NO_KEY)
    records = [sqlserver("c", commit=1, after=ANN), record(NO_KEY, None, keyless["value"], None)]
    write_records(tmp_path / "archive/1.jsonl", numbered(records))
    return tmp_path / "archive"


def test_the_files_can_be_read_as_they_are(archive: Path, run_alone: Run, no_spark: None, tmp_path: Path) -> None:
    folder = tmp_path / "dags"
    ended = run_alone("init", archive, "--out", folder, "--lake", "/data/lake")
    assert ended.code == 0
    assert list(read_flows(folder / "flows.yaml")) == [TOPIC, NO_KEY]
    settings = read_dags_file(folder / "airflow_cdc.yaml")
    assert [(dag.dag_id, dag.tables) for dag in settings.dags] == [("cdc_tables", ("*",))]
    assert settings.flows == str(folder / "flows.yaml")
    compile((folder / "cdc_tables.py").read_text(), "cdc_tables.py", "exec")
    assert f"wrote: {folder / 'flows.yaml'}" in ended.stdout.splitlines()
    assert f"airflow-cdc apply --archive {shlex.quote(str(archive))} --lake /data/lake" in ended.stdout


def test_the_written_dag_file_makes_its_dag(archive: Path, run_alone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dags"
    assert run_alone("init", archive, "--out", folder).code == 0
    monkeypatch.syspath_prepend(str(folder))
    try:
        import cdc_tables  # type: ignore[import-not-found]

        assert [name for name in vars(cdc_tables) if name == "cdc_tables"] == ["cdc_tables"]
    finally:
        sys.modules.pop("cdc_tables", None)


def test_the_comments_of_the_flows_file_become_settings_when_they_are_filled_in(archive: Path, run_alone: Run, tmp_path: Path) -> None:
    assert run_alone("init", archive, "--out", tmp_path).code == 0
    text = (tmp_path / "flows.yaml").read_text()
    filled = text.replace("  # keys: []", "  keys: [id]").replace("  # columns:", "  columns:")
    filled = filled.replace('  #   "id":', '    "id": INT').replace('  #   "na: me":', '    "na: me": STRING')
    entry = next(each for each in yaml.safe_load(filled)["flows"] if each["topic"] == NO_KEY)
    assert entry == {"topic": NO_KEY, "keys": ["id"], "columns": {"id": "INT", "na: me": "STRING"}}


def test_what_the_archive_does_not_show_is_named(archive: Path, run_alone: Run, tmp_path: Path) -> None:
    (archive / "2.parquet").write_bytes(b"PAR1")
    unknown = run_alone("init", archive, "--out", tmp_path, "--json").document["unknown"]
    assert f"keys: the records have none; name the columns in flows.yaml ({NO_KEY})" in unknown
    assert any(line.startswith("types: the events carry none; declare them") and TOPIC in line for line in unknown)
    assert f"rows from before the first event: no snapshot read is in the archive ({TOPIC})" in unknown
    assert f"whether the snapshot is complete: a run proves it, and its report shows it ({NO_KEY})" in unknown
    assert any(line.startswith("1 files were not read") for line in unknown)


@pytest.mark.parametrize("name", ["flows.yaml", "airflow_cdc.yaml", "cdc_tables.py"])
def test_nothing_is_written_where_one_of_the_files_exists(name: str, archive: Path, run_alone: Run, tmp_path: Path) -> None:
    folder = tmp_path / "dags"
    folder.mkdir()
    (folder / name).write_text("mine")
    ended = run_alone("init", archive, "--out", folder)
    assert (ended.code, ended.stdout) == (2, "")
    assert "nothing was written" in " ".join(ended.stderr.split())
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [(name, "mine")]
