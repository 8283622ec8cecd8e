"""Find renamed columns of a microbatch: by the flow's settings, the table's properties, or a schema change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from airflow_cdc.model.archive.survey import TopicShape
from airflow_cdc.model.connectors.connector import Connector
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.pipeline.decode.source_columns import image_names, member_names
from airflow_cdc.pipeline.survey.schema_changes import ChangesOf, TableChange
from airflow_cdc.pipeline.target.target_table import TargetTable

_MODES = (TableMode.CURRENT, TableMode.FLAGGED)
"""The other modes keep events under their original column names."""
_NAME = r'(?:`((?:[^`]|``)+)`|"((?:[^"]|"")+)"|([\w$#]+))'
_RENAMES = (
    re.compile(rf"\bRENAME\s+COLUMN\s+(?:IF\s+EXISTS\s+)?{_NAME}\s+TO\s+{_NAME}", re.IGNORECASE),
    # CHANGE COLUMN names the type too.
    re.compile(rf"\bCHANGE\s+(?:COLUMN\s+)?(?:IF\s+EXISTS\s+)?{_NAME}\s+{_NAME}\s+\w", re.IGNORECASE),
)


def find_renames(
    flow: CdcFlow,
    connector: Connector,
    rows: Sequence[TopicShape],
    target: TargetTable | None,
    changes_of: ChangesOf,
    *,
    without_key: bool = False,
) -> dict[str, str]:
    """Return current column names by the older names that events may use.

    A name that appears beside the newer one in an event or the table is a column of its own: no rename explains both. The schema-change
    topic is read only where a name is new to the table, or, for a table still to be created, not in all events.

    :param rows: shapes of the microbatch's row events.
    :raises ConfigurationError: when the flow renames columns of a table that keeps original names.
    """
    mode = target.mode if target else flow.mode
    if without_key or mode not in _MODES or not connector.images.names_may_change:
        if flow.renamed_columns:
            raise ConfigurationError(
                f"Flow {flow.name}: renamed_columns is for tables of rows as they are now, with a key, of Debezium's connectors to"
                " relational databases.",
                next_step="Take it out of the flow's settings; a renamed column is then a new one.",
            )
        return {}
    names_of = [frozenset(image_names(shape.value_shape)) for shape in rows if shape.value_shape is not None]
    held = {name.lower() for name in target.columns} if target else set()
    is_new = any(name.lower() not in held for names in names_of for name in names) if target else len({*names_of}) > 1
    stated = stated_renames(changes_of(flow.topic)) if is_new else {}
    known = {**(target.renamed if target else {}), **stated, **flow.renamed_columns}
    # A renamed key is another key, which stops the flow.
    keys = {
        *flow.keys,
        *(target.keys if target else ()),
        *(name for shape in rows if shape.key_shape for name in member_names(shape.key_shape)),
    }
    there = [*names_of, frozenset(target.columns if target else ())]
    found = {old: _newest(old, known) for old in known}
    return {
        old: new
        for old, new in found.items()
        if old.lower() != new.lower() and not {old, new} & keys and not any(old in names and new in names for names in there)
    }


def _newest(name: str, renames: Mapping[str, str]) -> str:
    passed = {name}
    while (newer := renames.get(name, name)) not in passed:
        passed.add(newer)
        name = newer
    return name


def stated_renames(changes: Iterable[TableChange]) -> dict[str, str]:
    """Return current column names by their older ones, from a table's schema changes.

    A RENAME statement counts only where the columns before and after confirm it. An old name that a column has again is no rename.

    :param changes: in their order.
    """
    found: dict[str, str] = {}
    for before, after in pairwise(changes):
        had, has = ({column.name.lower(): column.name for column in change.columns} for change in (before, after))
        for old, new in renames_in(after.ddl):
            gone, come = had.get(old.lower()), has.get(new.lower())
            if gone and come and old.lower() not in has and new.lower() not in had:
                found = {name: come if today == gone else today for name, today in found.items()} | {gone: come}
        found = {name: today for name, today in found.items() if name.lower() not in has}
    return found


def renames_in(ddl: str) -> list[tuple[str, str]]:
    """Return old and new names of the columns that a DDL statement renames."""
    return [(_unquoted(match.groups()[:3]), _unquoted(match.groups()[3:])) for pattern in _RENAMES for match in pattern.finditer(ddl)]


def _unquoted(forms: Sequence[str | None]) -> str:
    in_backticks, in_quotes, bare = forms
    return (in_backticks or "").replace("``", "`") or (in_quotes or "").replace('""', '"') or (bare or "")
