"""Find which columns of a microbatch are others under an older name: as the flow says, the table remembers, or a schema change told."""

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
"""The others keep events by the names that they had."""
_NAME = r'(?:`((?:[^`]|``)+)`|"((?:[^"]|"")+)"|([\w$#]+))'
_RENAMES = (
    re.compile(rf"\bRENAME\s+COLUMN\s+(?:IF\s+EXISTS\s+)?{_NAME}\s+TO\s+{_NAME}", re.IGNORECASE),
    # This form names the type too.
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
    """Return the columns' names of today by the older names that events may have for them.

    A name that an event or the table has beside the newer one is a column of its own: no rename explains both. The schema-change topic
    is asked only where a name is new to the table, or not in all events of the one that makes it.

    :param rows: shapes of the microbatch's row events.
    :raises ConfigurationError: when the flow renames columns of a table that keeps them by the names they had.
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
    told = renames_told(changes_of(flow.topic)) if is_new else {}
    known = {**(target.renamed if target else {}), **told, **flow.renamed_columns}
    # A key of another name is another key: that stops the flow.
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


def renames_told(changes: Iterable[TableChange]) -> dict[str, str]:
    """Return the columns' names of today by their older ones, as a table's changes tell it.

    What a statement says counts only where the columns before and behind it bear it out. An old name that a column has again tells nothing.

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
    """Return old and new names of the columns that a statement renames."""
    return [(_unquoted(match.groups()[:3]), _unquoted(match.groups()[3:])) for pattern in _RENAMES for match in pattern.finditer(ddl)]


def _unquoted(forms: Sequence[str | None]) -> str:
    in_backticks, in_quotes, bare = forms
    return (in_backticks or "").replace("``", "`") or (in_quotes or "").replace('""', '"') or (bare or "")
