"""``airflow-cdc schema pull`` from a real PostgreSQL and a real MariaDB, through Airflow's own hooks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from airflow_cdc.model.catalogue.queries import in_style
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.pull.settings import catalogues
from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from airflow_cdc.pipeline.upkeep.import_schemas import import_schemas, read_inputs
from tests.conftest import Apply
from tests.golden.bare_archives import strip
from tests.golden.connect_schemas import CAPTURES, CATALOGUES, comparable, row_fields
from tests.golden.test_bare_captures import ALTERED
from tests.golden.test_catalogues import OTHERWISE, TOPICS
from tests.system.databases import PASSWORD, Database, environment, running_mariadb, running_postgresql

pytestmark = pytest.mark.system_deep

_ASK = """
import json, sys
from airflow.providers.common.compat.sdk import BaseHook
hook, asked = BaseHook.get_connection("shop").get_hook(), json.load(sys.stdin)
rows = [[list(row) for row in hook.get_records(sql, tuple(given) or None)] for sql, given in asked]
print(json.dumps(rows, default=lambda value: bytes(value).decode()))
"""

_MORE_OF_POSTGRESQL = """
CREATE TYPE pair AS (a integer, b text);
CREATE DOMAIN price AS numeric(9,3); CREATE DOMAIN offer AS price; CREATE DOMAIN ints AS integer[];
CREATE TABLE inventory.more (
  a offer, b ints, c price[], d pair, e box, f circle, g int4multirange, i timestamp(2)[], j money[], k varbit, l macaddr8,
  m "char", n timetz, o interval(3), p pg_lsn, q xml[], r numeric[], s hstore[], t bit, PRIMARY KEY (m, l) INCLUDE (t)
);
"""
_FIELDS_OF_MORE: dict[str, Any] = {
    "a": ("bytes", "org.apache.kafka.connect.data.Decimal", {"scale": "3", "connect.decimal.precision": "9"}),
    "b": ("array", ("int32",)),
    **dict.fromkeys("cdefgjpq"),
    "i": ("array", ("int64", "io.debezium.time.Timestamp")),
    "k": ("bytes", "io.debezium.data.Bits", {"length": "2147483647"}),
    "l": ("string",),
    "m": ("string",),
    "n": ("string", "io.debezium.time.ZonedTime"),
    "o": ("int64", "io.debezium.time.MicroDuration"),
    "r": ("array", ("struct", "io.debezium.data.VariableScaleDecimal")),
    "s": ("array", ("string", "io.debezium.data.Json")),
    "t": ("boolean",),
}

_MORE_OF_MARIADB = """
CREATE TABLE more (
  a float(7,4), b float(30), c double unsigned, d inet6, e boolean, f json, g geometry, h multipolygon, i mediumint unsigned,
  j smallint unsigned zerofill, k tinyblob, l bit, m float unsigned, n enum(' unsigned'), o year, p date
);
"""
_FIELDS_OF_MORE_OF_MARIADB: dict[str, Any] = {
    **dict.fromkeys("abc", ("double",)),
    "d": None,
    "e": ("int16",),
    "f": ("string",),
    **dict.fromkeys("gh", ("struct", "io.debezium.data.geometry.Geometry")),
    **dict.fromkeys("ij", ("int32",)),
    "k": ("bytes",),
    "l": ("boolean",),
    "m": ("float",),
    "n": ("string", "io.debezium.data.Enum", {"allowed": " unsigned"}),
    "o": ("int32", "io.debezium.time.Year"),
    "p": ("int32", "io.debezium.time.Date"),
}


def sql_of(capture: str) -> str:
    return (CATALOGUES / f"{capture}.sql").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Database]:
    with running_postgresql("shop") as database:
        database.run(sql_of("pg_types_precise") + sql_of("pg_load") + _MORE_OF_POSTGRESQL)
        yield database


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Database]:
    with running_mariadb("shop") as database:
        database.run(f"USE shop;\n{sql_of('maria_types_precise')}{sql_of('maria_load')}{_MORE_OF_MARIADB}")
        yield database


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


def pull(database: Database, *arguments: object, **changes: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "airflow_cdc", "schema", "pull", *map(str, arguments), "--source-conn-id", "shop"]
    environ = environment(shop=database.connection(**changes))
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert PASSWORD not in ran.stdout + ran.stderr
    return ran


def short(field: dict[str, Any]) -> Any:
    if not field:
        return None
    inner = short(field["items"]) if "items" in field else None
    return tuple(part for part in (field["type"], field.get("name"), field.get("parameters"), inner) if part)


def modes_of(capture: str) -> list[str]:
    settings = json.loads((CATALOGUES / f"{capture}.json").read_text(encoding="utf-8"))["settings"]
    return [part for name, value in settings.items() for part in (f"--{name.replace('.', '-')}", value)]


CASES = [("postgresql", capture) for capture in ("pg_load", "pg_types_precise")]
CASES += [("mariadb", capture) for capture in ("maria_load", "maria_types_precise")]


@pytest.mark.parametrize(("server", "capture"), CASES, indirect=["server"])
def test_what_is_pulled_is_what_the_connector_wrote(server: Database, capture: str, tmp_path: Path) -> None:
    kept = json.loads((CATALOGUES / f"{capture}.json").read_text(encoding="utf-8"))
    out = tmp_path / "schemas.yaml"

    ran = pull(server, *TOPICS[capture].split(), "--out", out, *modes_of(capture))

    assert ran.returncode == 0, ran.stdout + ran.stderr
    document = yaml.safe_load(out.read_text(encoding="utf-8"))
    for schema in document["schemas"]:
        written = row_fields(capture, schema["flow"])
        declared = {column["column"]: comparable(column["connect"]) for column in schema["columns"]}
        differing = {(schema["flow"], name): (field, written.get(name)) for name, field in declared.items() if field != written.get(name)}
        assert differing == {place: both for place, both in OTHERWISE.items() if place[0] == schema["flow"]}
        assert set(written) <= set(declared)
        name = schema["origin"].rpartition(" table ")[2]
        assert schema["keys"] == kept["tables"][name]["keys"]
    assert len(document["schemas"]) == len(TOPICS[capture].split())


@pytest.mark.parametrize(("server", "capture"), CASES, indirect=["server"])
def test_bare_events_with_what_is_pulled_make_the_tables_that_events_with_schemas_make(
    server: Database, capture: str, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    flows = tuple(flow for flow in TOPICS[capture].split() if matches_any(flow, ALTERED))
    lakes, out = [str(tmp_path / name) for name in ("bare", "schema")], tmp_path / "schemas.yaml"
    strip(CAPTURES / capture / "archive/schema", tmp_path / "archive")
    ran = pull(server, *flows, "--out", out, *modes_of(capture))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    import_schemas(lakes[0], read_inputs([str(out)]))

    for archive, lake in zip((tmp_path / "archive", CAPTURES / capture / "archive/schema"), lakes, strict=True):
        apply(archive, lake, tables=flows)

    found = compare_lakes(spark, *lakes)
    assert {table.flow for table in found.tables} == set(flows)
    assert [table for table in found.tables if not table.equal] == []


@pytest.mark.parametrize(("server", "capture"), CASES, indirect=["server"])
def test_the_rows_kept_beside_the_captures_are_those_of_the_server(server: Database, capture: str) -> None:
    kept = json.loads((CATALOGUES / f"{capture}.json").read_text(encoding="utf-8"))
    asked = [(in_style(catalogues()[kept["connector"]].queries.columns, "%s"), name.split(".", 1)) for name in kept["tables"]]

    environ = environment(shop=server.connection())
    ran = subprocess.run([sys.executable, "-c", _ASK], input=json.dumps(asked), env=environ, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.strip().splitlines()[-1]) == [table["columns"] for table in kept["tables"].values()]


def test_types_that_no_capture_holds_of_postgresql(postgresql: Database, tmp_path: Path) -> None:
    out = tmp_path / "more.json"

    ran = pull(postgresql, "shop.inventory.more", "--out", out, "--json")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout) == json.loads(out.read_text(encoding="utf-8"))
    (schema,) = json.loads(ran.stdout)["schemas"]
    assert {column["column"]: short(column["connect"]) for column in schema["columns"]} == _FIELDS_OF_MORE
    assert schema["keys"] == ["m", "l"]


def test_types_that_no_capture_holds_of_mariadb(mariadb: Database, tmp_path: Path) -> None:
    ran = pull(mariadb, "any.prefix.shop.more", "--out", tmp_path / "more.json", "--json")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    (schema,) = json.loads(ran.stdout)["schemas"]
    assert {column["column"]: short(column["connect"]) for column in schema["columns"]} == _FIELDS_OF_MORE_OF_MARIADB


@pytest.mark.parametrize("server", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize("changes", [{"password": "wrong"}, {"port": 1}])
def test_a_database_that_refuses_or_does_not_answer_fails_the_command(server: Database, changes: dict[str, object], tmp_path: Path) -> None:
    ran = pull(server, "shop.shop.more", "--out", tmp_path / "out.yaml", **changes)

    assert ran.returncode == 1
    assert "SourceFailedError: Connection shop: the database does not answer or refuses" in ran.stderr
    assert "wrong" not in ran.stdout + ran.stderr
    assert not (tmp_path / "out.yaml").exists()


def test_a_flow_without_a_table_is_named_with_the_tables_that_are_there(postgresql: Database, tmp_path: Path) -> None:
    ran = pull(postgresql, "shop.inventory.orders", "shop.inventory.gone", "--out", tmp_path / "out.yaml")

    assert ran.returncode == 2
    assert "Flow shop.inventory.gone" in ran.stderr
    assert "inventory.orders" in ran.stderr
    assert not (tmp_path / "out.yaml").exists()


def test_the_archives_connection_names_the_database(postgresql: Database, tmp_path: Path) -> None:
    archive = {"conn_type": "cdc_archive", "host": "/archive", "extra": {"source_conn_id": "shop"}}
    command = [sys.executable, "-m", "airflow_cdc", "schema", "pull", "shop.inventory.orders", "--out", tmp_path / "out.yaml"]
    environ = environment(shop=postgresql.connection(), cdc_archive_default=archive)

    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("shop.inventory.orders: catalogue of postgresql, connection shop")


def test_a_connection_that_airflow_keeps_in_its_own_database_is_found(postgresql: Database, tmp_path: Path) -> None:
    environ = {**environment(), "AIRFLOW_HOME": str(tmp_path / "airflow")}
    fields = json.dumps(postgresql.connection())
    airflow = [sys.executable, "-m", "airflow"]
    for command in ([*airflow, "db", "migrate"], [*airflow, "connections", "add", "kept", "--conn-json", fields]):
        subprocess.run(command, env=environ, capture_output=True, check=True)
    pulled = [sys.executable, "-m", "airflow_cdc", "schema", "pull", "shop.inventory.orders", "--source-conn-id", "kept"]

    ran = subprocess.run([*pulled, "--out", tmp_path / "out.yaml"], env=environ, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    assert "DECIMAL(14,4)" in ran.stdout
    assert ran.stdout.startswith("shop.inventory.orders: catalogue of postgresql, connection kept")
