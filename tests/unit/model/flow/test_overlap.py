"""Overlap of globs: never none where a name shows that there is one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_cdc.model.flow.overlap import may_share
from airflow_cdc.model.globs import matches_any

NAMES = ["".join(letters) for length in (1, 2, 3) for letters in itertools.product("ab.", repeat=length)]
globs = st.lists(st.text("ab.*?", min_size=1, max_size=4), min_size=1, max_size=2)
sets = st.sampled_from(["[ab]", "[!a]b", "a[.b]*", "?", "*a"])
outs = st.lists(st.text("ab.*?", min_size=1, max_size=3).map("!{}".format), max_size=2)


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (["a.*"], ["*.b"], ("a.*", "*.b")),
        (["a.*.x"], ["a.*.y"], None),
        (["a", "b"], ["c", "b"], ("b", "b")),
        (["A.b"], ["a.b"], None),
        (["*"], ["a"], ("*", "a")),
        (["*", "!a", "!b.*"], ["a", "b.c.*"], None),
        (["*", "!a"], ["a", "b"], ("*", "b")),
        # A glob that is left out leaves no more out than it matches.
        (["*", "!a.?"], ["a.*"], ("*", "a.*")),
        # None but what is left out: all the others.
        (["!a"], ["b"], ("*", "b")),
        (["x" * 249 + "*"], ["*" + "x" * 249], ("x" * 249 + "*", "*" + "x" * 249)),
    ],
)
def test_lists_share_a_flow_where_one_name_fits_both(one: list[str], other: list[str], shared: tuple[str, str] | None) -> None:
    assert may_share(one, other) == shared
    assert may_share(other, one) == (shared and shared[::-1])


@example(one=["a[.b]*"], other=["??"], out=[], other_out=["!*.*"])
@given(one=globs | st.lists(sets, min_size=1, max_size=1), other=globs, out=outs, other_out=outs)
def test_an_overlap_that_a_name_proves_is_found(one: list[str], other: list[str], out: list[str], other_out: list[str]) -> None:
    left, right = [*one, *out], [*other, *other_out]
    both = [name for name in NAMES if matches_any(name, left) and matches_any(name, right)]
    assert not both or may_share(left, right), both


@given(one=globs, other=globs)
def test_without_sets_and_exceptions_there_is_none_where_no_name_is(one: list[str], other: list[str]) -> None:
    # Two globs that share a name share one with no more letters than both have beside their stars: here up to six are looked at.
    longer = ("".join(letters) for length in (0, 4, 5, 6) for letters in itertools.product("ab.", repeat=length))
    shown = any(matches_any(name, one) and matches_any(name, other) for name in itertools.chain(NAMES, longer))
    assert shown or not may_share(one, other) or any(sum(letter != "*" for letter in glob) > 3 for glob in (*one, *other))
