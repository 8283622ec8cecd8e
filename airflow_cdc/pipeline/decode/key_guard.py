"""Which deletes name their row: a filler is never a key.

A delete's before image holds the columns of the table's replica identity, and fillers in place of the others; the record's key is made
of the image. So a key column is proven by a value that is no filler, by an image that is a whole row, and by the record's key, unless the
image shows that another index identifies the row (docs/sources/postgresql.md#deletes-that-do-not-name-their-row). The images of other
events prove no image whole: the replica identity may have changed in between.

Runs a Spark job where Spark decodes: what the microbatch's images show.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.archive.survey import TopicShape
from airflow_cdc.model.columns import KIND, OFFSET, RAW_KEY
from airflow_cdc.pipeline.decode.envelope import in_line
from airflow_cdc.pipeline.decode.fillers import may_be_filler
from airflow_cdc.pipeline.decode.key_changes import changes_key
from airflow_cdc.pipeline.decode.source_columns import image_fields
from airflow_cdc.pipeline.spark import sql

_MAP = "'MAP<STRING, STRING>'"


@dataclass(frozen=True)
class Updates:
    """What the updates and deletes of a microbatch show of the images before."""

    changes: int = 0
    """Updates that change the flow's key: each becomes two events."""
    unseen: int = 0
    """Updates without an image before: whether they change the flow's key is not known, and the table's images are no whole rows."""
    shown: frozenset[str] = frozenset()
    """Key columns with different values in the images of deletes, none of them a filler: such a value is no default.
    A filler stays in doubt: the replica identity may have changed between the two deletes."""


@dataclass(frozen=True)
class KeyGuard:
    """What proves the key of a topic's deletes."""

    keys: Sequence[str]
    of_records: frozenset[str]
    """Columns that are in the key of each row event."""
    has_fillers: bool
    """Whether before images may hold fillers; otherwise each key is proven."""
    are_own: bool
    """Whether the flow's keys have a column that is not in every record's key."""
    are_declared_whole: bool
    """Whether the flow says that its table's before images are whole rows."""
    defaults: Mapping[str, str] | None
    """By column: the default in the events' schemas, which stands in place of the type's filler; None where events carry no schema."""

    def asks(self, updates: Updates) -> bool:
        """Return whether a delete has to prove its key: an update without an image before contradicts what the flow says."""
        return self.has_fillers and not (self.are_declared_whole and not updates.unseen)

    def in_doubt(self, column: str, text: str) -> str:
        """Return the SQL, of both engines, that is true for a text that may be a filler of its column, or the column's default."""
        default = (self.defaults or {}).get(column)
        return may_be_filler(text) if default is None else f"({may_be_filler(text)} OR {text} = {sql.text(default)})"

    def unproven_in_spark(self, texts: Mapping[str, str], updates: Updates, *, has_keys: bool) -> str:
        """Return the SQL over a located record that is true for a delete whose key may be made of fillers.

        :param texts: SQL of the key columns' texts.
        :param updates: of the microbatch.
        :param has_keys: whether some records have keys.
        """
        if not self.asks(updates):
            return "false"
        is_delete = f"{KIND} = 'd' AND payload.before IS NOT NULL"
        if not self.are_own:
            # The record's own key: made of fillers alone, though the image shows another column.
            all_in_doubt = " AND ".join(may_be_filler(text) for text in texts.values()) or "false"
            return f"CASE WHEN {is_delete} AND {all_in_doubt} THEN {self._beside('array()', _SHOWS_ANOTHER)} ELSE false END"
        doubts = [self._doubt_in_spark(key, text, updates, has_keys=has_keys) for key, text in texts.items()]
        is_row = "false" if self.defaults is None else f"key_shows AND exists(beside, entry -> entry.is_shown AND {self._is_no_key})"
        has_null_key = f"({RAW_KEY} IS NULL AND {OFFSET} IS NOT NULL)"
        found = self._beside(_KEY_NAMES, f"NOT ({has_null_key} OR ({is_row})) AND ({' OR '.join(doubts)})")
        shows = f"exists(coalesce(map_values({_KEY_MAP}), array()), text -> NOT {may_be_filler('text')})"
        return f"CASE WHEN {is_delete} THEN {sql.let('key_shows', shows, found)} ELSE false END"

    def _doubt_in_spark(self, key: str, text: str, updates: Updates, *, has_keys: bool) -> str:
        own = self.in_doubt(key, text)
        if self.defaults is None and key not in updates.shown:
            # A value beside a key that is no filler may be the column's default.
            own = f"({own} OR key_shows)"
        in_key = f"key.{sql.name(key)} IS NOT NULL" if has_keys else "false"
        return f"if({in_key}, NOT key_shows AND {_SHOWS_ANOTHER}, {own})"

    @property
    def _is_no_key(self) -> str:
        return f"NOT array_contains({sql.texts(self.keys)}, entry.name)"

    def _beside(self, names: str, body: str) -> str:
        """Return ``body`` with ``beside``: name and ``is_shown`` of the before image's columns that are not in the key.

        :param names: SQL of the names of the record's key; of no names where the flow's keys are the record's.
        """
        ours = "array()" if self.are_own else sql.texts(self.keys)
        default = self.defaults or {}
        is_default = f"coalesce(entry.value = {_map(default)}[entry.key], false)" if default else "false"
        shown = f"NOT ({may_be_filler('entry.value')} OR {is_default})"
        others = f"filter(map_entries({_BEFORE_MAP}), entry -> NOT array_contains(concat({ours}, {names}), entry.key))"
        beside = f"coalesce(transform({others}, entry -> named_struct('name', entry.key, 'is_shown', {shown})), array())"
        return sql.let("beside", beside, body)


_KEY_OBJECT = f"coalesce(get_json_object({RAW_KEY}, '$.payload'), {RAW_KEY})"
_KEY_MAP = f"from_json({_KEY_OBJECT}, {_MAP})"
_KEY_NAMES = f"coalesce(json_object_keys({_KEY_OBJECT}), CAST(array() AS ARRAY<STRING>))"
_BEFORE_MAP = f"from_json({in_line('before')}, {_MAP})"
_SHOWS_ANOTHER = "(exists(beside, entry -> entry.is_shown) AND exists(beside, entry -> NOT entry.is_shown))"
"""SQL that is true for an image that is no whole row for certain, and shows a column beside the key."""


def _map(texts: Mapping[str, str]) -> str:
    return f"map({', '.join(f'{sql.text(name)}, {sql.text(value)}' for name, value in texts.items())})"


def defaults_of(shapes: Iterable[TopicShape]) -> dict[str, str]:
    """Return the columns' defaults in the events' schemas, as the texts of values."""
    found = (field for shape in shapes for field in image_fields(shape.value_shape or "{}") if field.get("default") is not None)
    return {field["field"]: _text(field["default"]) for field in found}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def updates_in_spark(records: DataFrame, guard: KeyGuard) -> Updates:
    """Return what located records show. Runs a job."""
    quoted = [sql.name(key) for key in guard.keys]
    is_update = f"{KIND} = 'u' AND payload.after IS NOT NULL"
    counts = {
        "changes": f"{is_update} AND {changes_key(quoted)}",
        "unseen": f"{is_update} AND payload.before IS NULL",
    }
    aggregates = [F.count_if(F.expr(condition)).alias(name) for name, condition in counts.items()]
    for place, (key, name) in enumerate(zip(guard.keys, quoted, strict=True)):
        text = f"payload.before.{name}"
        shown = F.expr(f"CASE WHEN {KIND} = 'd' AND NOT {guard.in_doubt(key, text)} THEN {text} END")
        aggregates.append((F.min(shown) != F.max(shown)).alias(f"shown_{place}"))
    row = records.agg(*aggregates).first()
    assert row is not None
    shown_keys = frozenset(key for place, key in enumerate(guard.keys) if row[f"shown_{place}"])
    return Updates(**{name: int(row[name]) for name in counts}, shown=shown_keys)
