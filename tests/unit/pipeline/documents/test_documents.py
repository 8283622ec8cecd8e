"""Documents as text: read and written letter by letter, changed as MongoDB changes them, never made up."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from airflow_cdc.pipeline.documents import documents
from airflow_cdc.pipeline.documents.documents import document_id, fold_documents, patched, read_document, write_document

DOCUMENT = '{"_id": 1,"a": {"b": 1,"c": [10,20,30]},"n": null,"s": "x"}'


def description(updated: str | None = None, removed: list[str] | None = None, truncated: list[dict[str, Any]] | None = None) -> str:
    return json.dumps({"updatedFields": updated, "removedFields": removed, "truncatedArrays": truncated})


def after(document: str, patch: str) -> str | None:
    return write_document(patched(read_document(document), patch))


@pytest.mark.parametrize(
    "text",
    [
        '{"_id": {"$oid": "596e275826f08b2730779e1f"},"f": NaN,"g": -Infinity,"h": 1.0E10,"i": 0.10,"j": 12345678901234567890123}',
        '{"_id": {"$binary": "a2Fma2E=","$type": "00"},"d": {"$numberDecimal": "839.330"},"e": {},"l": [],"b": true,"n": null}',
        '{"": 1,"é\\"x\\\\": "漢\\n\\t\\u0000\\u200b\\ud83d\\ude00/","$ref": "a"}',
    ],
)
def test_a_document_is_written_as_it_was_read(text: str) -> None:
    assert write_document(read_document(text)) == text


_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**31), 2**31 - 1), st.text(max_size=5))
_NAMES = st.text('abcdé 0$"', max_size=3)
_VALUES = st.recursive(_SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3), max_leaves=12)


_UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@_UNHURRIED
@given(st.dictionaries(_NAMES, _VALUES, max_size=5))
def test_what_is_written_is_json_of_the_same_value_and_stays_the_same(value: dict[str, Any]) -> None:
    written = write_document(read_document(json.dumps(value)))

    assert written is not None
    assert json.loads(written) == value
    assert list(json.loads(written)) == list(value)
    assert write_document(read_document(written)) == written


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (description('{"s": "y","new": 2}'), '{"_id": 1,"a": {"b": 1,"c": [10,20,30]},"n": null,"s": "y","new": 2}'),
        (description('{"a.b": 2,"a.x.y": 3}'), '{"_id": 1,"a": {"b": 2,"c": [10,20,30],"x": {"y": 3}},"n": null,"s": "x"}'),
        (description('{"a.c.1": 21,"a.c.4": 50}'), '{"_id": 1,"a": {"b": 1,"c": [10,21,30,null,50]},"n": null,"s": "x"}'),
        (description("{}", ["s", "a.b", "gone", "s.t"]), '{"_id": 1,"a": {"c": [10,20,30]},"n": null}'),
        (description("{}", None, [{"field": "a.c", "size": 1}]), '{"_id": 1,"a": {"b": 1,"c": [10]},"n": null,"s": "x"}'),
        (description(None), DOCUMENT),
        # Truncated first: what is set behind stays.
        (description('{"a.c.1": 9}', None, [{"field": "a.c", "size": 1}]), '{"_id": 1,"a": {"b": 1,"c": [10,9]},"n": null,"s": "x"}'),
        ('{"$v": 1,"$set": {"a.b": 5},"$unset": {"s": true}}', '{"_id": 1,"a": {"b": 5,"c": [10,20,30]},"n": null}'),
        ('{"_id": 1,"whole": {"$numberLong": "3"}}', '{"_id": 1,"whole": {"$numberLong": "3"}}'),
        (
            '{"$v": 2,"diff": {"d": {"s": false},"u": {"n": 7},"i": {"z": 1},"sa": {"u": {"b": 2},"sc": {"a": true,"l": 2,"u0": 11}}}}',
            '{"_id": 1,"a": {"b": 2,"c": [11,20]},"n": 7,"z": 1}',
        ),
    ],
)
def test_a_patch_changes_what_it_names(patch: str, expected: str) -> None:
    assert after(DOCUMENT, patch) == expected


@pytest.mark.parametrize(
    ("relaxed", "strict"),
    [
        ("3640", "3640"),
        ("9007199254740993", '{"$numberLong": "9007199254740993"}'),
        ("-2147483649", '{"$numberLong": "-2147483649"}'),
        ("1.50", "1.50"),
        ('{"$date": "1998-07-01T03:08:23.327Z"}', '{"$date": 899262503327}'),
        ('{"$date": "1970-01-01T00:00:00Z"}', '{"$date": 0}'),
        ('{"$date": {"$numberLong": "-62135596800001"}}', '{"$date": -62135596800001}'),
        ('{"$date": 5}', '{"$date": 5}'),
        ('{"$binary": {"base64": "AQID", "subType": "00"}}', '{"$binary": "AQID","$type": "00"}'),
        ('{"$uuid": "14eed813-35e0-4174-97f4-ec66ce5947db"}', '{"$binary": "FO7YEzXgQXSX9OxmzllH2w==","$type": "04"}'),
        ('{"$numberDouble": "NaN"}', "NaN"),
        ('{"$regularExpression": {"pattern": "^a", "options": "i"}}', '{"$regex": "^a","$options": "i"}'),
        ('{"x": [{"$numberInt": "1"}, {"$oid": "596e275826f08b2730779e1f"}]}', '{"x": [1,{"$oid": "596e275826f08b2730779e1f"}]}'),
    ],
)
def test_values_of_an_update_are_spelled_as_whole_documents_spell_them(relaxed: str, strict: str) -> None:
    assert after('{"_id": 1}', description(f'{{"v": {relaxed}}}')) == f'{{"_id": 1,"v": {strict}}}'


@pytest.mark.parametrize("path", ["s.t", "n.t", "a.c.x", "a.b.0"])
def test_a_path_that_does_not_fit_leaves_no_document_until_an_event_carries_what_is_there(path: str) -> None:
    misfit = ("u", None, description(f'{{"{path}": 1}}'), None)
    healed = ("u", None, description('{"s": 1,"n": 2,"a": 3}'), None)

    assert fold_documents(DOCUMENT, [misfit]) is None
    assert fold_documents(DOCUMENT, [misfit, healed]) == '{"_id": 1,"a": 3,"n": 2,"s": 1}'


@st.composite
def changes(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    """Change a document as a program does, and return how an update's event carries it."""
    kind = draw(st.sampled_from(["set", "remove", "truncate"]))
    place, way = document, []
    while inner := [name for name, value in place.items() if isinstance(value, dict) and value]:
        if not draw(st.booleans()):
            break
        way.append(draw(st.sampled_from(inner)))
        place = place[way[-1]]
    name = draw(st.sampled_from("abc"))
    path = ".".join([*way, name])
    if kind == "remove" and name in place:
        del place[name]
        return {"removedFields": [path]}
    if kind == "truncate" and isinstance(place.get(name), list):
        size = draw(st.integers(0, len(place[name])))
        del place[name][size:]
        return {"truncatedArrays": [{"field": path, "size": size}]}
    place[name] = draw(_TREES)
    return {"updatedFields": json.dumps({path: place[name]})}


_TREES = st.recursive(
    st.none() | st.integers(0, 9) | st.text("é0", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3),
    max_leaves=6,
)


@_UNHURRIED
@given(st.data())
def test_the_folded_document_is_the_one_that_the_program_has(data: st.DataObject) -> None:
    document = {"_id": 1, "a": data.draw(_TREES)}
    base = json.dumps(document)
    steps = [("u", None, json.dumps(data.draw(changes(document))), None) for _ in range(data.draw(st.integers(1, 6)))]

    folded = fold_documents(base, steps)

    assert folded is not None
    assert json.dumps(json.loads(folded)) == json.dumps(document)
    # However microbatches divide the events.
    cut = data.draw(st.integers(0, len(steps)))
    assert fold_documents(fold_documents(base, steps[:cut]), steps[cut:]) == folded


@pytest.mark.parametrize(
    "patch",
    [
        '{"truncatedArrays": [1]}',
        '{"removedFields": [[1]]}',
        '{"updatedFields": "{\\"d\\": {\\"$date\\": \\"soon\\"}}"}',
        '{"$set": 1}',
        '{"$v": 2,"diff": {"sa": 1}}',
    ],
)
def test_a_patch_of_another_shape_leaves_no_document(patch: str) -> None:
    assert fold_documents(DOCUMENT, [("u", None, patch, None)]) is None


@pytest.mark.parametrize("patch", ["", "[1]", "no json", '{"$rename": {"a": "b"}}', '{"updatedFields": "no json"}', '{"$v": 2,"diff": 1}'])
def test_a_patch_that_is_none_leaves_no_document(patch: str) -> None:
    assert fold_documents(DOCUMENT, [("u", None, patch, None)]) is None


def test_events_are_folded_onto_the_last_whole_document() -> None:
    set_b = ("u", None, description('{"b": 2}'), None)

    assert fold_documents('{"_id": 1}', [set_b]) == '{"_id": 1,"b": 2}'
    assert fold_documents('{"_id": 1}', [("u", '{ "_id":1 }', None, None)]) == '{ "_id":1 }'
    assert fold_documents(None, [("c", '{"_id": 1,"a": 1}', None, None), set_b]) == '{"_id": 1,"a": 1,"b": 2}'
    assert fold_documents(None, [set_b]) is None
    assert fold_documents('{"_id": 1}', [("d", None, None, None)]) == '{"_id": 1}'
    # A document that was deleted is nobody's base.
    assert fold_documents('{"_id": 1}', [("d", None, None, None), set_b]) is None
    # What an event carries itself goes first.
    assert fold_documents('{"_id": 1,"old": 1}', [("u", None, description('{"b": 2}'), '{"_id": 1}')]) == '{"_id": 1,"b": 2}'
    # The same change twice, as a restarted connector sends it, changes nothing.
    cut = ("u", None, description('{"c.1": 9}', ["a"], [{"field": "c", "size": 1}]), None)
    assert fold_documents('{"_id": 1,"a": 1,"c": [1,2]}', [cut, cut]) == '{"_id": 1,"c": [1,9]}'


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ('{"_id": 12.34}', "12.34"),
        ('{"_id": "1234"}', '"1234"'),
        ('{"a": 1, "_id": {"$oid": "596e275826f08b2730779e1f"}}', '{"$oid": "596e275826f08b2730779e1f"}'),
        ('{"_id": {"$numberLong": "1004"}}', "1004"),
        ('{"_id": {"a": 19, "b": "z"}, "f": NaN}', '{"a": 19,"b": "z"}'),
        ("{}", None),
        ("no json", None),
    ],
)
def test_a_documents_key_is_spelled_as_records_spell_it(document: str, key: str | None) -> None:
    assert document_id(document) == key


def test_the_fold_runs_where_the_package_is_not() -> None:
    cloudpickle.register_pickle_by_value(documents)  # type: ignore[no-untyped-call]
    sent = pickle.dumps(cloudpickle.dumps(documents.fold_documents))
    program = f"""
import pickle, sys
from pyspark import cloudpickle
sys.modules["airflow_cdc"] = None
fold = cloudpickle.loads(pickle.loads({sent!r}))
print(fold('{{"_id": 1}}', [("u", None, '{{"updatedFields": "{{\\\\"a\\\\": [1]}}"}}', None)]))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert run.stdout == '{"_id": 1,"a": [1]}\n'
