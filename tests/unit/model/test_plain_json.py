"""Plain JSON: one spelling for each declared type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest

from airflow_cdc.model.plain_json import BigInt, JsonArray, JsonObject


class Colour(str, Enum):
    RED = "red"


@dataclass(frozen=True)
class Point(JsonArray):
    x: BigInt
    y: int | None = None


@dataclass(frozen=True)
class Drawing(JsonObject, names={"name": "title"}, required=("points",)):
    name: str
    points: tuple[Point, ...] = ()
    colours: frozenset[Colour] = frozenset()
    by_number: Mapping[int, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    origin: Point | None = None
    words: Sequence[str] = ()
    anything: dict[str, Any] | None = None


@dataclass(frozen=True)
class Terse(JsonObject, omits_defaults=True):
    count: int
    colour: Colour = Colour.RED
    names: tuple[str, ...] = ()


FULL = Drawing("d", (Point(2**70, 1), Point(3)), frozenset({Colour.RED}), {7: (("a", 1),)}, Point(0), ("w",), {"k": [1]})
SPELLED = {
    "title": "d",
    "points": [[str(2**70), 1], ["3", None]],
    "colours": ["red"],
    "by_number": {"7": [["a", 1]]},
    "origin": ["0", None],
    "words": ["w"],
    "anything": {"k": [1]},
}


def test_every_declared_type_has_one_spelling_and_comes_back() -> None:
    assert FULL.to_json() == SPELLED
    assert Drawing.from_json(json.loads(json.dumps(SPELLED))) == FULL


def test_absent_members_have_their_defaults_unless_the_class_requires_them() -> None:
    assert Drawing.from_json({"title": "d", "points": []}) == Drawing("d")
    with pytest.raises(KeyError, match="Drawing lacks points"):
        Drawing.from_json({"title": "d"})
    with pytest.raises(TypeError, match="name"):
        Drawing.from_json({"points": []})
    assert Point.from_json(["5"]) == Point(5)


def test_members_and_elements_that_no_field_has_are_ignored() -> None:
    assert Drawing.from_json({**SPELLED, "name": "not the member's name", "more": {}}) == FULL
    assert Point.from_json(["5", 6, {"more": 1}]) == Point(5, 6)


def test_a_terse_class_leaves_out_what_equals_its_default() -> None:
    assert Terse(0).to_json() == {"count": 0}
    assert Terse(0, names=("a",)).to_json() == {"count": 0, "names": ["a"]}
    assert Terse.from_json({"count": 0}) == Terse(0)


@pytest.mark.parametrize("document", [None, 3, "text", [1, 2], {"title": "d", "points": 3}, {"title": "d", "points": [["x"]]}])
def test_a_document_of_another_shape_is_not_read(document: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        Drawing.from_json(document)


def test_a_type_without_a_spelling_is_refused_when_it_is_first_used() -> None:
    @dataclass(frozen=True)
    class Odd(JsonObject):
        value: complex = 0j

    with pytest.raises(TypeError, match=r"complex.*has no spelling"):
        Odd().to_json()
