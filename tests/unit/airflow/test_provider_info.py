"""What Airflow discovers: valid by its own schemas, and every named class is there."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import airflow
import jsonschema
import pytest
from airflow.providers.common.compat.sdk import BaseNotifier, BaseOperatorLink

from airflow_cdc.assets import table_asset
from airflow_cdc.get_provider_info import get_provider_info
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.flow.engine import Engine

REPOSITORY = Path(__file__).parents[3]
_AIRFLOW = Path(airflow.__file__).parent
INFO = get_provider_info()
_CLASSES = ("extra-links", "notifications")


def _schema(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((_AIRFLOW / name).read_text())
    return schema


def test_the_provider_info_fits_airflows_schema() -> None:
    jsonschema.validate(INFO, _schema("provider_info.schema.json"))


@pytest.mark.parametrize(
    "section",
    ["integrations", "operators", "sensors", "hooks", "triggers", "asset-uris", "connection-types", "task-decorators", *_CLASSES, "config"],
)
def test_each_section_fits_the_stricter_schema_of_airflows_own_providers(section: str) -> None:
    # provider_info.schema.json does not look inside conn-fields: a typo there would only show as a missing field in the form.
    schema = _schema("provider.yaml.schema.json")
    jsonschema.validate(INFO[section], {**schema["properties"][section], "definitions": schema.get("definitions", {})})


@pytest.mark.parametrize("section", ["operators", "sensors", "hooks", "triggers"])
def test_every_module_of_a_section_can_be_imported_and_its_integration_exists(section: str) -> None:
    names = {integration["integration-name"] for integration in INFO["integrations"]}
    for entry in INFO[section]:
        assert entry["integration-name"] in names
        for module in entry["python-modules"]:
            importlib.import_module(module)


@pytest.mark.parametrize("section", _CLASSES)
def test_every_class_of_a_section_is_there_and_none_is_left_out(section: str) -> None:
    paths = [path.rsplit(".", 1) for path in INFO[section]]
    made = {module: importlib.import_module(module) for module, _ in paths}
    base = {"extra-links": BaseOperatorLink, "notifications": BaseNotifier}[section]
    for name, module in made.items():
        own = {each.__name__ for each in vars(module).values() if isinstance(each, type) and issubclass(each, base) and each is not base}
        assert own == {each for path, each in paths if path == name}


def test_each_setting_of_the_config_section_is_read() -> None:
    options = INFO["config"]["airflow_cdc"]["options"]
    sources = "".join(path.read_text() for path in (REPOSITORY / "airflow_cdc").rglob("*.py"))
    assert [name for name in options if f'"airflow_cdc", "{name}"' not in sources] == []
    assert {name: option["default"] for name, option in options.items() if option["default"]} == {"show_values": "admins"}


@pytest.mark.parametrize("entry", INFO["connection-types"], ids=lambda entry: entry["connection-type"])
def test_a_connection_type_is_the_one_its_hook_names(entry: dict[str, Any]) -> None:
    module, name = entry["hook-class-name"].rsplit(".", 1)
    hook = getattr(importlib.import_module(module), name)
    assert (hook.conn_type, hook.hook_name) == (entry["connection-type"], entry["hook-name"])
    assert hook.default_conn_name == f"{entry['connection-type']}_default"
    assert hook().conn_id == hook.default_conn_name


@pytest.mark.parametrize("entry", INFO["connection-types"], ids=lambda entry: entry["connection-type"])
def test_the_form_has_no_required_field_but_the_root(entry: dict[str, Any]) -> None:
    # A type without "null" makes the field required in the form.
    assert {tuple(field["schema"]["type"]) for field in entry["conn-fields"].values()} == {("string", "null")}
    assert "host" in entry["ui-field-behaviour"]["relabeling"]
    assert "host" not in entry["ui-field-behaviour"]["hidden-fields"]


FIELDS = {
    "cdc_archive": {"storage_conn_id", "source_conn_id", "layout", "format"},
    "cdc_lake": {"storage_conn_id", "engine", "page_reads"},
}


@pytest.mark.parametrize(("kind", "fields"), FIELDS.items())
def test_a_hook_reads_every_field_of_its_form_and_takes_every_choice(scene: Any, kind: str, fields: set[str]) -> None:
    entry = next(entry for entry in INFO["connection-types"] if entry["connection-type"] == kind)
    assert set(entry["conn-fields"]) == fields
    module, name = entry["hook-class-name"].rsplit(".", 1)
    hook = getattr(importlib.import_module(module), name)
    connections = {field for field in fields if field.endswith("conn_id")}
    for field in connections:
        scene.connect("filled", conn_type=kind, host="/data", extra={field: "mine"})
        assert [getattr(hook("filled"), each) for each in connections if each != field] == [None] * (len(connections) - 1)
        assert getattr(hook("filled"), field) == "mine"
    for field in fields - connections - {"engine", "page_reads"}:
        schema = entry["conn-fields"][field]["schema"]
        assert schema["default"] == "auto"
        for choice in schema["enum"]:
            scene.connect("filled", conn_type=kind, host="/data", extra={field: choice})
            assert getattr(hook("filled").shape, field).value == choice
        known = type(getattr(hook("filled").shape, field))
        assert [choice.value for choice in known] == schema["enum"]


@pytest.mark.parametrize("engine", [None, *(each.value for each in Engine)])
def test_the_lakes_hook_reads_the_engine_of_its_form(scene: Any, engine: str | None) -> None:
    scene.connect("filled", conn_type="cdc_lake", host="/data", extra={"engine": engine})
    assert CdcLakeHook("filled").engine == engine


@pytest.mark.parametrize(
    ("given", "found"),
    [(None, ()), ("s3://b/t, /data/a", ("s3://b/t", "/data/a")), (["/data/a"], ("/data/a",))],
)
def test_the_lakes_hook_reads_what_the_page_may_read(scene: Any, given: Any, found: tuple[str, ...]) -> None:
    scene.connect("filled", conn_type="cdc_lake", host="/data", extra={"page_reads": given})
    assert CdcLakeHook("filled").page_reads == found


@pytest.mark.slow
def test_airflow_lists_the_provider_and_its_connection_types(tmp_path: Path) -> None:
    # Installed by hand into a folder: the test must not depend on how the package came onto this machine.
    installed = tmp_path / "airflow_cdc-0.0.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: airflow-cdc\nVersion: 0.0.0\n")
    (installed / "entry_points.txt").write_text(
        "[apache_airflow_provider]\nprovider_info = airflow_cdc.get_provider_info:get_provider_info\n"
    )
    program = (
        "from airflow.providers_manager import ProvidersManager as M; m = M();"
        "print('airflow-cdc' in m.providers, sorted(n for n, h in m.hooks.items() if h and h.package_name == 'airflow-cdc'))"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines()[-1:] == ["True ['cdc_archive', 'cdc_lake']"], ended.stderr[-2000:]


def test_the_logo_and_every_guide_are_files_of_this_repository() -> None:
    (integration,) = INFO["integrations"]
    named = [integration["logo"], *integration["how-to-guide"]]
    assert [path for path in named if not (REPOSITORY / path.removeprefix("/")).is_file()] == []
    root = ElementTree.parse(REPOSITORY / integration["logo"].removeprefix("/")).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


def test_a_hook_reports_a_table_by_its_scheme_and_parts() -> None:
    (uris,) = INFO["asset-uris"]
    module, name = uris["factory"].rsplit(".", 1)
    made = getattr(importlib.import_module(module), name)("server.db.orders", lake_conn_id="lake_a", extra={"by": "hand"})
    assert (made.uri, made.extra) == (table_asset("server.db.orders", lake_conn_id="lake_a").uri, {"by": "hand"})
    assert made.uri.startswith(f"{uris['schemes'][0]}://")
    module, name = uris["to_openlineage_converter"].rsplit(".", 1)
    assert callable(getattr(importlib.import_module(module), name))
