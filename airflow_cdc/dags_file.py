"""airflow_cdc.yaml: the Dags that a factory makes, validated as a whole before the first is made (docs/reference/dags-file.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.overlap import may_share
from airflow_cdc.model.flow.routes import flows_from_document
from airflow_cdc.model.globs import is_glob

_MOST_NAMED = 5
_EXPECTATIONS = {"value_error": "{error}", "too_short": "{min_length} or more", "string_too_short": "a text"}
_MOST_INLINE = 100_000
"""Most bytes of flows in one command-line argument, with some room: Linux allows 131,072."""
_NAME = "{table}"
_POOLS = {"pool", "one_slot_pool"}
_FLOWS = ("flows", "routes", "on_new_topic", "on_unknown_types", "engine")
"""Settings of a flows file that may stand here instead of one."""
_WITHOUT_INTERVALS = {None, "@once", "@continuous"}

_Text = Annotated[str, Field(min_length=1)]
# Any object in a module, as `import` spells it. It is imported only when the Dag is made.
_DOTTED = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$"
_Path = Annotated[str, Field(pattern=_DOTTED)]
_DagId = Annotated[str, Field(pattern=r"^[\w.{}-]+$", max_length=250)]


class _Model(BaseModel):
    # Strict: in YAML, `retries: "2"` and `catchup: yes please` are mistakes.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Notice(_Model):
    """One notifier, and what it is called for (:class:`airflow_cdc.notifications.flows.CdcNotifier`)."""

    by: _Path
    """Dotted path of a notifier's class."""
    arguments: dict[_Text, Any] = {}
    """Its arguments; texts may be templates with ``cdc``."""
    stopped: bool = True
    behind_seconds: Annotated[float, Field(gt=0)] | None = None
    attention: bool = True


class DagSettings(_Model):
    """Settings of one Dag, and in ``defaults`` of all."""

    schedule: _Text | None = "*/10 * * * *"
    start_date: date = date(2026, 1, 1)
    """A day, in UTC."""
    catchup: bool = False
    owner: _Text = "airflow"
    tags: list[_Text] = ["cdc"]
    retries: Annotated[int, Field(ge=0)] = 2
    retry_delay: Annotated[int, Field(ge=0)] = 60
    """Seconds."""
    execution_timeout: Annotated[int, Field(gt=0)] | None = None
    """Seconds, for one try of the merge."""
    on_failure_callback: _Path | None = None
    """Dotted path of the callable that Airflow calls when a task fails for good."""
    on_retry_callback: _Path | None = None
    """As above, when a task fails and is retried."""
    on_success_callback: _Path | None = None
    """As above, when the merge has succeeded."""
    queue: _Text | None = None
    """The executor's queue for both tasks."""
    pool: _Text | None = None
    """Airflow's pool for the merge, which limits how many run at the same time."""
    one_slot_pool: _Text | None = None
    """As above, with one slot: Dags that share it may share tables."""
    by_data_interval: bool = False
    """Whether a run takes only files of its data interval, so that each run of a backfill takes its own files."""
    deferrable: bool | None = None
    """Whether the merge waits in the triggerer; None: Airflow's configuration decides."""
    check_transactions: bool = False
    consistent: bool = False
    fail_on_rejects: Literal["never", "any"] | Annotated[float, Field(ge=0, le=1)] = "never"
    """Share of a flow's records in the quarantine, per run, above which the merge fails."""
    conf: dict[_Text, _Text] = {}
    """Spark options for the merge."""
    notify: list[Notice] = []
    """Notifiers for what a run found."""

    @model_validator(mode="after")
    def _has_one_pool(self) -> DagSettings:
        if self.pool and self.one_slot_pool:
            raise ValueError("one of 'pool' and 'one_slot_pool'")
        if self.one_slot_pool == "default_pool":
            raise ValueError("a one_slot_pool other than default_pool, which has many slots")
        return self


class DagEntry(DagSettings):
    """One entry of ``dags``: one Dag for some tables, or one Dag per table."""

    dag_id: _DagId
    tables: Annotated[list[_Text], Field(min_length=1)] | None = None
    """Globs."""
    each_table: Annotated[list[_Text], Field(min_length=1)] | None = None
    """Names."""

    @model_validator(mode="after")
    def _names_its_tables_once(self) -> DagEntry:
        if (self.tables is None) is (self.each_table is None):
            raise ValueError("one of 'tables' and 'each_table'")
        if (self.each_table is not None) is not (_NAME in self.dag_id):
            raise ValueError(f"a dag_id with {_NAME} in it for 'each_table', and without for 'tables'")
        return self

    @field_validator("each_table")
    @classmethod
    def _are_names(cls, names: list[str]) -> list[str]:
        if globs := [name for name in names if is_glob(name) or name.startswith("!")]:
            raise ValueError(f"names of tables, no globs such as {globs[0]!r}: Airflow must know its Dags without asking the archive")
        return names


class _Document(_Model):
    archive_conn_id: _Text = "cdc_archive_default"
    lake_conn_id: _Text = "cdc_lake_default"
    spark_conn_id: _Text = "spark_default"
    flows_file: _Text | None = None
    flows: list[dict[str, Any]] | None = None
    routes: list[dict[str, Any]] | None = None
    on_new_topic: Literal["create", "quarantine", "stop"] | None = None
    on_unknown_types: Literal["stop", "text", "guess"] | None = None
    engine: Literal["auto", "spark", "native"] | None = None
    defaults: DagSettings = DagSettings()
    dags: Annotated[list[DagEntry], Field(min_length=1)]

    @model_validator(mode="after")
    def _has_one_place_of_flows(self) -> _Document:
        if self.flows_file and (beside := [name for name in _FLOWS if getattr(self, name)]):
            raise ValueError(f"either 'flows_file', or {' and '.join(map(repr, beside))}: the flows file holds these settings itself")
        return self


@dataclass(frozen=True)
class PlannedDag:
    """One Dag requested by the file."""

    dag_id: str
    tables: tuple[str, ...]
    settings: DagSettings
    place: str
    """Its location in the file."""


@dataclass(frozen=True)
class DagsFile:
    """Content of the file."""

    archive_conn_id: str
    lake_conn_id: str
    spark_conn_id: str
    flows: str | None
    """The ``flows_file`` of the merges: a path or URI, or the settings themselves as JSON."""
    dags: tuple[PlannedDag, ...]


def read_dags_file(path: Path | str) -> DagsFile:
    """Return the content of ``airflow_cdc.yaml``, without access to connections or storage.

    :raises ConfigurationError: when the file cannot be read, has a wrong setting, or asks for two Dags that could merge one table at the
        same time. It names the file, the place in it, and what was expected there.
    """
    try:
        # The loader creates plain values only, like the safe one.
        document = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Loader)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _wrong(path, f"it cannot be read: {error}") from error
    try:
        asked = _Document.model_validate(document)
    except ValidationError as error:
        raise _wrong(path, "; ".join(_problems(error))) from error
    dags = tuple(_planned(asked))
    _refuse_no_intervals(path, dags)
    _refuse_same_ids(path, dags)
    _refuse_shared_tables(path, dags)
    conn_ids = {name: getattr(asked, name) for name in ("archive_conn_id", "lake_conn_id", "spark_conn_id")}
    return DagsFile(**conn_ids, flows=asked.flows_file or _inline_flows(path, asked), dags=dags)


def _wrong(path: Path | str, what: str) -> ConfigurationError:
    return ConfigurationError(f"{path}: {what}.", next_step="Correct the file; docs/reference/dags-file.md describes every setting.")


class _Loader(yaml.SafeLoader):
    """Refuses duplicate keys: YAML's own loaders silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _problems(error: ValidationError) -> Iterator[str]:
    problems = error.errors(include_url=False)
    for problem in problems[:_MOST_NAMED]:
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".") or "the document"
        if problem["type"] == "extra_forbidden":
            yield f"{place} is no setting; known are {', '.join(_known(problem['loc']))}"
        elif problem["type"] == "missing":
            yield f"{place} is missing"
        else:
            yield f"{place} is {_short(problem['input'])}, expected {_expected(problem)}"
    if len(problems) > _MOST_NAMED:
        yield f"and {len(problems) - _MOST_NAMED} more"


def _expected(problem: Mapping[str, Any]) -> str:
    expectation = _EXPECTATIONS.get(problem["type"])
    if problem["type"] == "string_pattern_mismatch" and problem["ctx"]["pattern"] == _DOTTED:
        return "a dotted path such as my_alerts.page"
    return expectation.format(**problem["ctx"]) if expectation else str(problem["msg"]).removeprefix("Input should be ")


def _known(place: tuple[int | str, ...]) -> list[str]:
    parts: dict[str, type[_Model]] = {"dags": DagEntry, "defaults": DagSettings}
    model = Notice if "notify" in place else parts[str(place[0])] if len(place) > 1 else _Document
    return sorted(model.model_fields)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _planned(asked: _Document) -> Iterator[PlannedDag]:
    given = asked.defaults.model_dump(exclude_unset=True)
    for number, entry in enumerate(asked.dags):
        own = entry.model_dump(exclude_unset=True, exclude={"dag_id", "tables", "each_table"})
        # A Dag has one of the two kinds of pools: its own overrides the defaults', whichever kind it is.
        rest = {name: value for name, value in given.items() if not (name in _POOLS and _POOLS & own.keys())}
        settings = DagSettings(**{**rest, **own})
        if entry.tables:
            yield PlannedDag(dag_id=entry.dag_id, tables=tuple(entry.tables), settings=settings, place=f"dags[{number}]")
        for index, table in enumerate(entry.each_table or ()):
            dag_id = entry.dag_id.replace(_NAME, table)
            yield PlannedDag(dag_id=dag_id, tables=(table,), settings=settings, place=f"dags[{number}].each_table[{index}]")


def _refuse_no_intervals(path: Path | str, dags: tuple[PlannedDag, ...]) -> None:
    # Checked on the settings merged with the defaults, which must not combine both.
    for dag in dags:
        if dag.settings.by_data_interval and dag.settings.schedule in _WITHOUT_INTERVALS:
            seen = f"{dag.place}.schedule is {dag.settings.schedule!r} with by_data_interval"
            raise _wrong(path, f"{seen}, expected cron's fields or a preset such as '@daily': others have no intervals")


def _refuse_same_ids(path: Path | str, dags: tuple[PlannedDag, ...]) -> None:
    known: dict[str, PlannedDag] = {}
    for dag in dags:
        if not re.fullmatch(r"[\w.-]{1,250}", dag.dag_id):
            raise _wrong(
                path, f"{dag.place} makes the dag_id {dag.dag_id!r}, expected up to 250 letters, digits, dots, dashes and underscores"
            )
        if known.setdefault(dag.dag_id, dag) is not dag:
            raise _wrong(path, f"{known[dag.dag_id].place} and {dag.place} make the same dag_id {dag.dag_id!r}")


def _refuse_shared_tables(path: Path | str, dags: tuple[PlannedDag, ...]) -> None:
    """Refuse two Dags that could merge one table at the same time.

    It would do no harm: one of the two waits, or fails and is retried. But it would at every schedule, and the file most likely lacks a
    ``!``.
    """
    for one, other in _neighbours(dags):
        pool = one.settings.one_slot_pool
        if (pool and pool == other.settings.one_slot_pool) or not (shared := may_share(one.tables, other.tables)):
            continue
        raise ConfigurationError(
            f"{path}: {one.place} ({one.dag_id}) and {other.place} ({other.dag_id}) could merge one table at the same time, "
            f"of which one would wait or fail every time: {shared[0]!r} and {shared[1]!r} may match the same.",
            next_step=f"Make them disjoint (a glob behind '!' leaves tables out: '!{shared[1]}'), or give both the same one_slot_pool.",
        )


def _neighbours(dags: tuple[PlannedDag, ...]) -> Iterator[tuple[PlannedDag, PlannedDag]]:
    """Yield the pairs that may share a table; among Dags of one named table each, only those with the same name."""
    named: dict[str, PlannedDag] = {}
    others: list[PlannedDag] = []
    for dag in dags:
        if len(dag.tables) == 1 and not is_glob(dag.tables[0]) and not dag.tables[0].startswith("!"):
            if dag.tables[0] in named:
                yield named[dag.tables[0]], dag
            named[dag.tables[0]] = dag
            yield from ((other, dag) for other in others)
        else:
            yield from ((other, dag) for other in (*named.values(), *others))
            others.append(dag)


def _inline_flows(path: Path | str, asked: _Document) -> str | None:
    document = {name: value for name in _FLOWS if (value := getattr(asked, name)) is not None}
    if not document:
        return None
    try:
        flows_from_document(document)
        text = json.dumps(document)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error.message}", next_step=error.next_step) from error
    except TypeError as error:
        raise _wrong(path, f"flows or routes hold a value that JSON has not: {error}") from error
    if len(text) > _MOST_INLINE:
        raise _wrong(
            path, f"flows and routes are {len(text)} characters of JSON, expected up to {_MOST_INLINE}: put them into a flows_file"
        )
    return text
