"""Documents: MongoDB's extended JSON as text, and updates' changes to it.

Plain Python, and our only code that runs on executors: it needs only the standard library and travels with the query
(:mod:`airflow_cdc.pipeline.documents.document_functions`). Numbers are never parsed, so they keep their digits. Unknown values are
never invented: a path that does not fit the document leaves a hole, and a document with a hole is unknown.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any


class Literal(str):
    """A number, NaN or infinity, verbatim."""

    __slots__ = ()


class _Hole:
    """Unknown value where a patch did not fit."""


_HOLE = _Hole()
_DESCRIPTION = {"updatedFields", "removedFields", "truncatedArrays"}
_INT32 = range(-(2**31), 2**31)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


Step = tuple[str, str | None, str | None, str | None]
"""An event's operation, document, patch, and document before it; None for what the event does not carry."""


def fold_documents(base: str | None, steps: Iterable[Step]) -> str | None:
    """Return the document that a key's events leave, None if it is unknown; a delete leaves the deleted document.

    :param base: the document before them, None if it is unknown or there is none.
    """
    known: Any = None
    whole, gone = base, False
    for operation, document, patch, pre_image in steps:
        if document is not None:
            whole, known = document, None
        elif operation == "d":
            gone = True
            continue
        else:
            if gone:
                # A deleted document is no base for later events.
                whole, known = None, None
            if pre_image is not None:
                whole = pre_image
            prior = read_document(whole) if whole is not None else known
            whole, known = None, None if patch is None else _patched_or_none(prior, patch)
        gone = False
    return whole if whole is not None else write_document(known)


def document_id(text: str) -> str | None:
    """Return a document's ``_id`` as written in a record's key, None if the text has none."""
    document = read_document(text)
    if not isinstance(document, dict) or "_id" not in document:
        return None
    found = document["_id"]
    if isinstance(found, dict) and list(found) == ["$numberLong"]:
        found = Literal(found["$numberLong"])
    return _written(found)


def read_document(text: str) -> Any:
    """Return the value of a JSON text, None for invalid JSON; NaN and infinity may be bare."""
    try:
        return json.loads(text, parse_int=Literal, parse_float=Literal, parse_constant=Literal, strict=False)
    except (ValueError, RecursionError):
        return None


def write_document(value: Any) -> str | None:
    """Return a document as Debezium writes it, None for an unknown one."""
    return _written(value) if isinstance(value, dict) and not _has_hole(value) else None


def _patched_or_none(document: Any, patch: str) -> Any:
    try:
        return patched(document, patch)
    except (AttributeError, KeyError, TypeError, ValueError):
        # A member does not have MongoDB's shape: the record is at fault, not the microbatch.
        return None


def patched(document: Any, patch: str) -> Any:
    """Return a document with a patch applied; it may be changed in place. None if either is unknown.

    :param patch: an ``updateDescription``, or an oplog entry's change: ``$set`` and ``$unset``, a difference
        (``{"$v": 2, "diff": …}``) or a whole document.
    """
    change = read_document(patch)
    if isinstance(change, dict) and "_id" in change:
        return change
    if not (isinstance(change, dict) and isinstance(document, dict)):
        return None
    if set(change) <= _DESCRIPTION:
        return _describe(document, change)
    if isinstance(change.get("diff"), dict):
        return _apply_difference(document, change["diff"])
    if set(change) <= {"$v", "$set", "$unset"}:
        return _apply(document, removed=change.get("$unset") or (), updated=change.get("$set") or {})
    return None


def _describe(document: dict[str, Any], change: Mapping[str, Any]) -> Any:
    updated = change.get("updatedFields")
    fields = {} if updated is None else read_document(str(updated))
    if not isinstance(fields, dict):
        return None
    for truncated in change.get("truncatedArrays") or ():
        array = _at(document, truncated["field"].split("."))
        if isinstance(array, list):
            del array[int(truncated["size"]) :]
    return _apply(document, removed=change.get("removedFields") or (), updated=fields)


def _apply(document: dict[str, Any], *, removed: Iterable[str], updated: Mapping[str, Any]) -> dict[str, Any]:
    for path in removed:
        *way, name = path.split(".")
        parent = _at(document, way)
        if _is_object(parent):
            parent.pop(name, None)
        elif isinstance(parent, list) and _is_index(name) and int(name) < len(parent):
            # An unset array element becomes null: the others keep their places.
            parent[int(name)] = None
    for path, value in updated.items():
        _set(document, path.split("."), strict(value))
    return document


def _at(value: Any, way: Iterable[str]) -> Any:
    """Return the value at a path, None if there is none."""
    for name in way:
        if _is_object(value):
            value = value.get(name)
        elif isinstance(value, list) and _is_index(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _set(parent: Any, way: list[str], value: Any) -> None:
    """Set the value at a path; missing objects on the way are created, as in MongoDB."""
    name, *rest = way
    if isinstance(parent, list):
        index = int(name)
        parent.extend([None] * (index + 1 - len(parent)))
        if rest:
            _step(parent[index], rest, value, lambda made: parent.__setitem__(index, made))
        else:
            parent[index] = value
    elif rest:
        _step(parent.get(name, {}), rest, value, lambda made: parent.__setitem__(name, made))
    else:
        parent[name] = value


def _step(child: Any, rest: list[str], value: Any, put: Callable[[Any], None]) -> None:
    if not (_is_object(child) or (isinstance(child, list) and _is_index(rest[0]))):
        put(_HOLE)
        return
    put(child)
    _set(child, rest, value)


def _apply_difference(document: dict[str, Any], difference: Mapping[str, Any]) -> dict[str, Any]:
    """Apply MongoDB 5's difference of an object: ``d`` deletes, ``u`` and ``i`` set, ``s<field>`` descends into a field."""
    for name in difference.get("d") or ():
        document.pop(name, None)
    for name, value in {**(difference.get("u") or {}), **(difference.get("i") or {})}.items():
        document[name] = strict(value)
    for name, inner in difference.items():
        if name[:1] == "s":
            document[name[1:]] = _within(document.get(name[1:]), inner)
    return document


def _within(child: Any, difference: Mapping[str, Any]) -> Any:
    if difference.get("a"):
        return _apply_array_difference(child, difference) if isinstance(child, list) else _HOLE
    return _apply_difference(child, difference) if _is_object(child) else _HOLE


def _apply_array_difference(array: list[Any], difference: Mapping[str, Any]) -> list[Any]:
    """Apply a difference of an array: ``l`` is its length, ``u<index>`` sets, ``s<index>`` descends into an element."""
    if "l" in difference:
        del array[int(difference["l"]) :]
    for name, value in difference.items():
        if not _is_index(name[1:]):
            continue
        index = int(name[1:])
        array.extend([None] * (index + 1 - len(array)))
        array[index] = strict(value) if name[0] == "u" else _within(array[index], value)
    return array


def _is_index(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _is_object(value: Any) -> bool:
    """Return whether a value is an object, rather than a value that extended JSON writes as one, such as ``{"$oid": …}``."""
    return isinstance(value, dict) and not next(iter(value), "").startswith("$")


def _has_hole(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is _HOLE or any(map(_has_hole, inner))


def strict(value: Any) -> Any:
    """Convert a value from extended JSON's relaxed mode, used in updates, to the strict mode of whole documents.

    An integer beyond 32 bits can only be a long. A shorter one may be an int or a long, and stays plain.
    """
    if isinstance(value, Literal):
        return {"$numberLong": str(value)} if re.fullmatch(r"-?\d+", value) and int(value) not in _INT32 else value
    if isinstance(value, list):
        return [strict(element) for element in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        name, inner = next(iter(value.items()))
        if name in _STRICT:
            return _STRICT[name](inner)
    if next(iter(value), "").startswith("$"):
        return value
    return {name: strict(inner) for name, inner in value.items()}


def _strict_date(value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and "$numberLong" in value:
        value = Literal(value["$numberLong"])
    if isinstance(value, Literal) or not isinstance(value, str):
        return {"$date": value}
    time = datetime.fromisoformat(re.sub(r"\.(\d+)", lambda found: f".{found[1]:0<6.6}", value.replace("Z", "+00:00")))
    return {"$date": Literal((time - _EPOCH) // timedelta(milliseconds=1))}


def _strict_binary(value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and "base64" in value:
        return {"$binary": value["base64"], "$type": f"{value.get('subType', '00'):0>2}"}
    return {"$binary": value}


def _strict_uuid(value: Any) -> dict[str, Any]:
    return {"$binary": base64.b64encode(bytes.fromhex(str(value).replace("-", ""))).decode(), "$type": "04"}


def _strict_expression(value: Any) -> dict[str, Any]:
    return {"$regex": value["pattern"], "$options": value.get("options", "")}


_STRICT: Mapping[str, Callable[[Any], Any]] = {
    "$numberInt": Literal,
    "$numberDouble": Literal,
    "$date": _strict_date,
    "$binary": _strict_binary,
    "$uuid": _strict_uuid,
    "$regularExpression": _strict_expression,
}

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
# MongoDB's writer escapes characters outside these categories, and both halves of a character beyond 16 bits.
_PRINTED = {
    *("Lu", "Ll", "Lt", "Lo", "Nd", "Nl", "No", "Zs", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So"),
}


def _written(value: Any) -> str:
    if isinstance(value, Literal):
        return str(value)
    if isinstance(value, str):
        return '"' + "".join(map(_escaped, value)) + '"'
    if isinstance(value, dict):
        return "{" + ",".join(f"{_written(str(name))}: {_written(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return json.dumps(value)


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if ord(character) < 0x10000 and unicodedata.category(character) in _PRINTED:
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
