"""The Dags that ship: they parse without Spark, and run by schedule and by hand."""

from __future__ import annotations

import itertools
import json
import re
import runpy
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import ParamValidationError

from airflow_cdc.doc_links import with_links
from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.job_argument import read_argument
from tests.unit.airflow.dag_bag import dag_bag

DAGS = Path(__file__).parents[3] / "dags"
FILES = sorted(path.name for path in DAGS.glob("*.py"))


def _bag(file: str) -> Any:
    return dag_bag(DAGS / file)


@pytest.mark.parametrize("file", FILES)
def test_a_dag_parses_without_errors(file: str) -> None:
    bag = _bag(file)
    assert bag.import_errors == {}
    assert bag.dags


@pytest.mark.parametrize("file", FILES)
def test_a_dag_file_costs_less_than_a_tenth_of_a_second_beside_its_imports(file: str) -> None:
    def seconds() -> float:
        begun = time.process_time()
        runpy.run_path(str(DAGS / file))
        return time.process_time() - begun

    # Of the first time the imports are a part, which are Airflow's and its Spark provider's more than ours.
    seconds()
    assert min(seconds() for _ in range(3)) < 0.1


IMPORTED = """
import json, runpy, sys

heavy, found = ("pyspark", "py4j", "delta", "pandas", "pyarrow"), {}
for path in sys.argv[1:]:
    runpy.run_path(path)
    found[path] = sorted(name for name in sys.modules if name.split(".")[0] in heavy or name.startswith("airflow_cdc.pipeline"))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def imported() -> Any:
    """By path of a Dag file, what is imported once it is parsed; one process parses all files, for Airflow's own imports take seconds."""
    command = [sys.executable, "-c", IMPORTED, *(str(DAGS / file) for file in FILES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=DAGS.parent, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_parsing_imports_neither_spark_nor_the_pipeline(file: str, imported: Any) -> None:
    assert imported[str(DAGS / file)] == []


@pytest.mark.parametrize("file", FILES)
def test_a_dag_is_quoted_by_the_docs_between_markers(file: str) -> None:
    text = (DAGS / file).read_text()
    name = file.removesuffix(".py")
    assert text.count(f"# [START howto_{name}]") == text.count(f"# [END howto_{name}]") == 1


def test_every_dag_has_a_description_and_what_merges_announces_its_tables() -> None:
    dags = [dag for file in FILES for dag in _bag(file).dags.values()]
    assert [dag.dag_id for dag in dags if not (dag.doc_md and dag.description)] == []
    merges = [task for dag in dags for task in dag.tasks if task.task_id in {"merge", "merge_group"}]
    assert len(merges) == 9
    assert [task.dag_id for task in merges if not task.outlets] == []


def test_every_dag_names_what_to_do_when_something_is_red_and_pages_that_exist() -> None:
    dags = [dag for file in FILES for dag in _bag(file).dags.values()]
    for dag in dags:
        named = re.findall(r"(?:Documentation:|·) ([^(·]+) \(`(docs/\S+)`\)", dag.doc_md or "")
        assert ("When something is red", "docs/how-to/when-something-is-red.md") in named, dag.dag_id
        assert len(named) >= 2, dag.dag_id
        for title, page in named:
            assert (DAGS.parent / page).read_text(encoding="utf-8").startswith(f"# {title}\n"), page


def test_the_pages_are_links_where_the_installation_publishes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__AIRFLOW_CDC__DOCS_URL", "https://docs.example.com/cdc/")
    text = with_links("What it is for.", "how-to/maintenance.md")
    assert text.startswith("What it is for.\n\n")
    assert "[When something is red](https://docs.example.com/cdc/how-to/when-something-is-red.md)" in text
    assert "(https://docs.example.com/cdc/how-to/maintenance.md)" in text


@pytest.mark.slow
def test_the_alias_of_the_shipped_dags_announces_the_tables_that_a_run_changed(scene: Any, run_dag: Any) -> None:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    scene.land("0000000000", topic="server.db.announced_by_alias")
    assert run_dag(None)["merge"] == "success"
    with create_session() as session:
        events = [(event.asset.uri, [alias.name for alias in event.source_aliases]) for event in session.scalars(select(AssetEvent))]
    assert ("x-cdc://lake/cdc_lake_default/server.db.announced_by_alias", ["cdc_tables:cdc_lake_default"]) in events


@pytest.mark.parametrize("task", ["merge", "maintain", "reprocess", "replay", "rebuild"])
def test_a_dag_has_one_writer_at_a_time_also_in_backfills(task: str) -> None:
    dags = [dag for file in FILES for dag in _bag(file).dags.values() if dag.has_task(task)]
    assert dags
    for dag in dags:
        # max_active_runs does not hold for backfills.
        assert dag.get_task(task).max_active_tis_per_dag == 1
        assert (dag.max_active_runs, dag.catchup) == (1, False)


def test_the_groups_of_a_run_go_side_by_side_and_runs_one_after_the_other() -> None:
    dag = _bag("cdc_merge_groups.py").dags["cdc_merge_groups"]
    merge = dag.get_task("merge_group")
    # A bound for the Dag would count all groups as one writer.
    assert (merge.partial_kwargs["max_active_tis_per_dagrun"], merge.partial_kwargs.get("max_active_tis_per_dag")) == (2, None)
    assert (dag.max_active_runs, dag.catchup) == (1, False)


@pytest.fixture
def run_dag(scene: Any, monkeypatch: pytest.MonkeyPatch, airflow_database: None) -> Any:
    """Run a Dag through Airflow, the merge's where none is named, with a spark-submit that needs no Spark."""
    from airflow.sdk import DAG

    # A master that is not local takes spark-submit from PATH.
    scene.connect("spark_default", conn_type="spark", host="spark://127.0.0.1:7077")
    monkeypatch.setenv("PATH", f"{scene.folder}:/usr/bin:/bin")

    def run(logical_date: datetime | None, dag_id: str = "cdc_merge", file: str | None = None, **conf: Any) -> dict[str, Any]:
        dag: DAG = _bag(file or f"{dag_id}.py").dags[dag_id]
        # Airflow 3.1 does not do it by itself.
        scene.save(dag)
        run = dag.test(logical_date=logical_date, run_conf=conf)
        return {"state": str(run.state), **{ti.task_id: str(ti.state) for ti in run.get_task_instances()}}

    return run


DATES = [datetime(2026, 11, 1, 10, 20, tzinfo=timezone.utc), None]


@pytest.mark.parametrize("logical_date", DATES, ids=["scheduled", "without a date"])
def test_a_run_applies_what_waits_and_the_next_is_skipped(scene: Any, run_dag: Any, logical_date: datetime | None) -> None:
    scene.land("0000000000")
    assert run_dag(logical_date) == {"state": "success", "wait_for_files": "success", "merge": "success"}
    again = logical_date and logical_date.replace(minute=30)
    assert run_dag(again) == {"state": "success", "wait_for_files": "skipped", "merge": "skipped"}


@pytest.mark.parametrize("logical_date", DATES, ids=["scheduled", "without a date"])
def test_the_maintenance_hands_the_forms_values_to_the_job(scene: Any, run_dag: Any, logical_date: datetime | None) -> None:
    scene.submit_leaves({"ok": True, "lake": "l", "dry_run": True, "flows": [], "error": None}, exit_code=0)
    form = {"tables": ["a.*", "b"], "vacuum_after_days": 14, "only_plan": True}
    assert run_dag(logical_date, "cdc_maintenance", **form) == {"state": "success", "maintain": "success"}
    settings = json.loads(read_argument(dict(scene.pairs)["--settings"]))
    assert (settings["vacuum_after_days"], settings["expire_after_days"], settings["purge_from"]) == (14, 30, 0.1)
    assert settings["dry_run"] is True
    assert [value for name, value in itertools.pairwise(scene.arguments) if name == "--table"] == ["a.*", "b"]


REPAIRED = {"ok": True, "archive": "a", "lake": "l", "dry_run": False, "flows": [], "error": None}
REBUILT = {"ok": True, "archive": "a", "lake": "l2", "flows": [], "control_topics": [], "ignored_files": [], "error": None}
REPAIRS = [
    (
        {"mode": "reprocess", "from_position": str(2**70), "to_position": "2026-11-21T09:30:00Z", "only_plan": True},
        ["--from-position", str(2**70), "--to-position", "2026-11-21T09:30:00Z", "--dry-run"],
    ),
    ({"mode": "replay", "reasons": ["missing_key", "malformed_json"]}, ["--reason", "missing_key", "--reason", "malformed_json"]),
    ({"mode": "retype", "only_plan": True}, ["--dry-run"]),
    (
        {"mode": "rebuild", "as_of": "0/16B3748", "into_lake_conn_id": "other_lake", "needs_approval": False},
        ["--as-of", "0/16B3748"],
    ),
]


@pytest.mark.parametrize("logical_date", DATES, ids=["with a date", "without a date"])
@pytest.mark.parametrize(("form", "arguments"), REPAIRS, ids=[form["mode"] for form, _ in REPAIRS])
def test_a_repair_hands_the_forms_values_to_the_job_of_its_mode(
    scene: Any, run_dag: Any, form: dict[str, Any], arguments: list[str], logical_date: datetime | None
) -> None:
    mode = form["mode"]
    scene.connect("other_lake", conn_type="cdc_lake", host="/other/lake")
    scene.submit_leaves(REBUILT if mode == "rebuild" else REPAIRED, exit_code=0)
    ended = run_dag(logical_date, "cdc_repair", tables=["a.*", "b"], **form)
    skipped = dict.fromkeys({"reprocess", "replay", "retype", "approve", "rebuild"} - {mode}, "skipped")
    assert ended == {"state": "success", "choose": "success", mode: "success", **skipped}
    job = next(number for number, argument in enumerate(scene.arguments) if argument.endswith(f"jobs/{mode}.py"))
    into = ["--into", "/other/lake"] if mode == "rebuild" else []
    roots = ["--archive", str(scene.archive), "--lake", str(scene.lake), *into, "--table", "a.*", "--table", "b"]
    assert scene.arguments[job + 1 : -4] == [*roots, *arguments]
    assert scene.arguments[-4::2] == ["--report", "--run-name"]


def test_a_repair_refuses_what_its_mode_does_not_take(scene: Any, run_dag: Any) -> None:
    scene.submit_by("#!/bin/sh\necho submitted; exit 3\n")
    ended = run_dag(None, "cdc_repair", tables=["a"], mode="replay", from_position="7")
    modes = dict.fromkeys(("reprocess", "replay", "retype", "approve", "rebuild"), "upstream_failed")
    assert ended == {"state": "failed", "choose": "failed", **modes}


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"tables": []},
        {"tables": [" "]},
        {"tables": ["a", ","]},
        {"tables": ["a"], "from_position": 2**70},
        {"tables": ["a"], "as_of": "yesterday"},
        {"tables": ["a"], "mode": "x"},
    ],
)
def test_the_form_of_a_repair_takes_no_nonsense(form: dict[str, Any]) -> None:
    def filled(values: dict[str, Any]) -> dict[str, Any]:
        params = _bag("cdc_repair.py").dags["cdc_repair"].params
        params.update(values)
        return params.validate()  # type: ignore[no-any-return]

    assert filled({"tables": ["a"], "from_position": str(2**70)})["from_position"] == str(2**70)
    with pytest.raises(ParamValidationError):
        filled(form)


def test_files_that_land_start_the_merge_by_a_watcher_and_it_runs_by_hand_too(scene: Any, run_dag: Any) -> None:
    from airflow_cdc.triggers.archive_event import CdcArchiveEventTrigger

    dag = _bag("cdc_merge_on_files.py").dags["cdc_merge_on_files"]
    (asset,) = dag.timetable.asset_condition.objects
    (watcher,) = asset.watchers
    trigger = watcher.trigger
    assert CdcArchiveEventTrigger(**trigger["kwargs"] if isinstance(trigger, dict) else trigger.serialize()[1]).poke_interval == 30
    scene.land("0000000000")
    assert run_dag(None, "cdc_merge_on_files") == {"state": "success", "merge": "success"}
    assert scene.arguments.count("--table") == 0


@pytest.mark.parametrize("logical_date", DATES, ids=["scheduled", "without a date"])
def test_a_dag_of_the_yaml_file_applies_its_tables_with_the_files_flows(scene: Any, run_dag: Any, logical_date: datetime | None) -> None:
    dags = _bag("cdc_tables.py").dags
    assert sorted(dags) == ["cdc_master_data", "cdc_prices", "cdc_prices_checked", "cdc_server.db.order_lines", "cdc_server.db.orders"]
    assert {dag.fileloc for dag in dags.values()} == {str(DAGS / "cdc_tables.py")}
    scene.land("0000000000")
    scene.land("0000000000", topic="server.db.customers")
    ran = {"state": "success", "wait_for_files": "success", "merge": "success"}
    assert run_dag(logical_date, "cdc_server.db.orders", "cdc_tables.py") == ran
    assert ("--table", "server.db.orders") in scene.pairs
    flows = dict(scene.pairs)["--flows"]
    assert read_flows(read_argument(flows))["server.db.prices"].stored_as_scd_type == 2
    # Its own table is done, the other Dag's waits.
    later = logical_date and logical_date.replace(minute=30)
    assert run_dag(later, "cdc_server.db.orders", "cdc_tables.py")["merge"] == "skipped"
    assert run_dag(logical_date, "cdc_master_data", "cdc_tables.py") == ran
    tables = [value for name, value in itertools.pairwise(scene.arguments) if name == "--table"]
    assert tables == ["server.db.*", "!server.db.orders", "!server.db.order_lines", "!server.db.prices"]
