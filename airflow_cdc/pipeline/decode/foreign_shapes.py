"""Foreign shapes: reject single records whose shape is unlike their topic's, instead of stopping the flow.

The columns and the key of a topic are resolved from the shapes of all its records. One record with a broken schema, another key or a name
that no table can have would decide for all others. If such shapes are few, their records are foreign and go to the quarantine. If they
are many, the source has changed, and the flow stops.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.archive.survey import TopicShape
from airflow_cdc.model.columns import KIND, RAW_KEY, is_reserved
from airflow_cdc.model.operation import ROW_OPERATIONS
from airflow_cdc.pipeline.decode.envelope import SCHEMA, in_line, key_shape_of
from airflow_cdc.pipeline.decode.source_columns import IMAGES, image_names, is_schema, is_single
from airflow_cdc.pipeline.decode.types.connect_types import is_field
from airflow_cdc.pipeline.spark import sql

_FEW = 20
"""At most one record in so many may be foreign. More of a kind are a change of the source."""
_ROWS = ", ".join(sql.text(operation.value) for operation in ROW_OPERATIONS)


@dataclass(frozen=True)
class Foreign:
    """Shapes whose records are rejected."""

    value_shapes: frozenset[str] = frozenset()
    key_shapes: frozenset[str] = frozenset()

    def holds(self, shape: TopicShape) -> bool:
        """Return whether records of the shape are foreign."""
        return shape.value_shape in self.value_shapes or shape.key_shape in self.key_shapes

    def condition(self) -> str | None:
        """Return the SQL over kind, raw line and raw key that is true for a foreign record; None if no shape is foreign.

        It derives a record's shapes as the survey does.
        """
        conditions = []
        if self.value_shapes:
            images = ", ".join(in_line(image) for image in IMAGES)
            conditions.append(_is_one_of(f"coalesce({SCHEMA}, to_json(json_object_keys(coalesce({images}))))", self.value_shapes))
        if self.key_shapes:
            conditions.append(_is_one_of(key_shape_of(RAW_KEY), self.key_shapes))
        return f"{KIND} IN ({_ROWS}) AND ({' OR '.join(conditions)})" if conditions else None


NONE_FOREIGN = Foreign()


def _is_one_of(shape: str, shapes: Iterable[str]) -> str:
    # Compare hashes: schemas are long, and may be many.
    hashes = ", ".join(sql.text(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()) for text in sorted(shapes))
    return f"coalesce(md5({shape}) IN ({hashes}), false)"


def find_foreign(rows: Sequence[TopicShape], *, columns: Iterable[str], keys: Sequence[str] | None) -> Foreign:
    """Return the shapes that are unlike their topic's.

    A readable value schema is the source's own, whatever its columns, and never foreign.

    :param rows: shapes of row events.
    :param columns: the names of the table's columns.
    :param keys: the key columns of the table or the flow; None: those of most records' keys.
    """
    texts = {shape.value_shape for shape in rows if shape.value_shape is not None}
    unreadable = frozenset(text for text in texts if not _is_readable(text))
    readable = [shape for shape in rows if shape.value_shape not in unreadable]
    broken = unreadable if _count(rows) < 2 * _count(readable) else frozenset()
    odd = _of_odd_names(readable, columns)
    values = broken | frozenset(shape.value_shape for shape in odd if shape.value_shape is not None and are_few(odd, rows))
    good = [shape for shape in readable if shape.value_shape not in values]
    names_of = {shape.key_shape: _key_names(shape.key_shape) for shape in good}
    wanted = _most_common_key(good, names_of) if keys is None else frozenset(keys)
    # Where keys identify rows, a record without one is rejected for its own reason (missing key).
    fitting: set[frozenset[str] | None] = {wanted} if wanted is None else {wanted, None}
    if keys is not None:
        # A single value names no column: it is the declared key column's value, or the image provides the key.
        fitting.add(_SINGLE)
    others = [shape for shape in good if names_of[shape.key_shape] not in fitting]
    named = [shape for shape in others if _only_lists_names(shape.key_shape)]
    foreign = [shape for shape in others if names_of[shape.key_shape] is _UNREADABLE] + (named if are_few(named, rows) else [])
    return Foreign(values, frozenset(shape.key_shape for shape in foreign if shape.key_shape is not None))


def _count(shapes: Iterable[TopicShape]) -> int:
    return sum(shape.records for shape in shapes)


def are_few(shapes: Iterable[TopicShape], of: Iterable[TopicShape]) -> bool:
    """Return whether the records of the shapes are few enough among all to be foreign."""
    return _count(shapes) * _FEW <= _count(of)


def _only_lists_names(shape: str | None) -> bool:
    """Return whether a shape is only a list of member names, which any record may have."""
    return shape is not None and not is_schema(shape)


def _of_odd_names(rows: Sequence[TopicShape], columns: Iterable[str]) -> list[TopicShape]:
    """Return the shapes with names that no table can have: reserved, or different from a more common name only in case."""
    counts: Counter[str] = Counter()
    names_of = {text: image_names(text) for shape in rows if (text := shape.value_shape) is not None}
    for shape in rows:
        counts.update(dict.fromkeys(names_of.get(shape.value_shape or "", ()), shape.records))
    spelled = {name.lower(): name for name in columns}
    for name, _ in counts.most_common():
        spelled.setdefault(name.lower(), name)

    def is_odd(text: str) -> bool:
        return any(is_reserved(name) or spelled[name.lower()] != name for name in names_of[text])

    return [shape for shape in rows if shape.value_shape is not None and _only_lists_names(shape.value_shape) and is_odd(shape.value_shape)]


def _is_readable(shape: str) -> bool:
    """Return whether a shape is a list of names, or a Connect schema with the fields of an image."""
    schema = _json(shape)
    if isinstance(schema, list):
        return all(isinstance(name, str) for name in schema)
    members = schema.get("fields") if isinstance(schema, dict) else None
    if not isinstance(members, list) or not all(isinstance(member, dict) for member in members):
        return False
    images = [member.get("fields") for member in members if member.get("field") in IMAGES]
    return bool(images) and all(isinstance(fields, list) and all(is_field(field) for field in fields) for fields in images)


def _most_common_key(rows: Iterable[TopicShape], names_of: Mapping[str | None, frozenset[str] | None]) -> frozenset[str] | None:
    counts: Counter[frozenset[str] | None] = Counter()
    for shape in rows:
        counts[names_of[shape.key_shape]] += shape.records
    del counts[_UNREADABLE]
    return counts.most_common(1)[0][0] if counts else None


_UNREADABLE: frozenset[str] = frozenset({"\0"})
_SINGLE: frozenset[str] = frozenset({"\0single"})
"""Stands for the names of a key that is a single value."""


def _key_names(text: str | None) -> frozenset[str] | None:
    """Return the names of a key's members, None for a record without key."""
    if text is None:
        return None
    key = _json(text)
    if key is not None and is_single(text):
        return _SINGLE
    fields = key.get("fields") if isinstance(key, dict) else key
    if not isinstance(fields, list):
        return _UNREADABLE
    names = [field.get("field") if isinstance(field, dict) else field for field in fields]
    read = frozenset(name for name in names if isinstance(name, str))
    return read if len(read) == len(names) else _UNREADABLE


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
