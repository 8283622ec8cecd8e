"""Groups: what waits, shared out so that no two merges at the same time write one table and no table is forgotten."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc.hooks.archive import table_globs
from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.cut import WaitingFiles
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.look.groups import FlowGroup, plan_groups
from airflow_cdc.model.look.pending import PendingFiles
from tests.support.scene import Scene
from tests.support.surveys import shape

# Also names that only files have: with what globs, and lists of them, mean something by.
names = st.text("ab.*?[]!, ", min_size=1, max_size=4).filter(lambda name: name.strip(", ") != "")
sizes = st.integers(0, 1000)


def sunk(topic: str, size: int = 1) -> ArchivedFile:
    return ArchivedFile(f"{topic}+0+0.json", size, topic, 0, 0)


def nameless(size: int = 1) -> ArchivedFile:
    return ArchivedFile("any.json", size, "any")


def plan(planned: dict[str, int], *new: ArchivedFile, **settings: object) -> list[tuple[list[str], int]]:
    pending = PendingFiles(new, dict.fromkeys(planned, 1), planned_bytes=planned)
    return [(list(group.tables), group.bytes) for group in plan_groups(pending, **settings)]  # type: ignore[arg-type]


def test_where_nothing_waits_there_is_no_group() -> None:
    assert plan({}) == []
    assert plan_groups(PendingFiles()) == ()


def test_what_one_group_holds_is_one_group() -> None:
    assert plan({"a": 40, "b": 50}, sunk("c", 10), group_bytes=100) == [(["b", "a", "c"], 100)]


def test_more_becomes_groups_of_about_the_same_size_the_greatest_first() -> None:
    assert plan({"a": 90, "b": 50, "c": 40, "d": 10}, sunk("e", 5), sunk("b", 10), group_bytes=100) == [
        (["a"], 90),
        (["b"], 60),
        (["c", "d", "e"], 55),
    ]


def test_there_are_no_more_groups_than_allowed_nor_than_tables() -> None:
    assert [size for _, size in plan({"a": 500, "b": 400, "c": 300}, group_bytes=1, max_groups=2)] == [700, 500]
    assert plan({"a": 500, "b": 0}, group_bytes=1, max_groups=9) == [(["a"], 500), (["b"], 0)]


def test_files_that_may_hold_any_topic_go_to_one_group_of_all_that_is_in_no_other() -> None:
    groups = plan({"a": 100, "b": 90}, nameless(20), group_bytes=70, max_groups=3)
    assert groups == [(["a"], 100), (["b"], 90), (["*", "!a", "!b"], 20)]
    # Within what was asked for.
    groups = plan({"a.x": 100, "a.y": 90}, nameless(20), tables=["a.*", "!a.z"], group_bytes=70)
    assert groups[-1] == (["a.*", "!a.z", "!a.x", "!a.y"], 20)
    # Where one group does for all, or is all there may be, it holds all.
    assert plan({"a": 10}, nameless(20), group_bytes=70) == [(["*"], 30)]
    assert plan({"a": 10}, nameless(20), tables=["a*"], group_bytes=1, max_groups=1) == [(["a*"], 30)]


@pytest.mark.parametrize("bound", ["group_bytes", "max_groups"])
def test_a_bound_below_one_is_refused(bound: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{bound} is 0, expected 1 or more"):
        plan({}, **{bound: 0})


@given(
    planned=st.dictionaries(names, sizes, max_size=8),
    new=st.lists(st.builds(sunk, names, sizes), max_size=4),
    rest=st.lists(st.builds(nameless, sizes), max_size=2),
    group_bytes=st.integers(1, 2000),
    max_groups=st.integers(1, 5),
)
def test_every_flow_is_in_one_group_and_the_groups_are_even(
    planned: dict[str, int], new: list[ArchivedFile], rest: list[ArchivedFile], group_bytes: int, max_groups: int
) -> None:
    pending = PendingFiles((*new, *rest), dict.fromkeys(planned, 1), planned_bytes=planned)
    groups = plan_groups(pending, group_bytes=group_bytes, max_groups=max_groups)
    waiting = Counter(planned)
    waiting.update({file.topic: 0 for file in new})
    for file in new:
        waiting[file.topic] += file.size
    total = sum(waiting.values()) + sum(file.size for file in rest)

    assert sum(group.bytes for group in groups) == total
    assert len(groups) <= max_groups
    assert len(groups) == 0 if not (planned or new or rest) else groups
    # Globs as the job is given them. Blanks and commas, which no topic of Kafka has, stand for any letter there.
    globs = [table_globs(group.tables) for group in groups]
    homes = [sum(matches_any(flow, tables) for tables in globs) for flow in waiting]
    assert all(homes)
    assert set(homes) <= {1} or any(set("!, ") & set(flow) for flow in waiting)
    if rest:
        assert sum(matches_any("a topic that nobody knows", tables) for tables in globs) == 1
    else:
        # No group is much greater than its share but by one table.
        share = total / len(groups) if groups else 0
        assert all(group.bytes <= share + max(waiting.values()) for group in groups)


def groups_of(scene: Scene, **settings: int) -> tuple[FlowGroup, ...]:
    return plan_groups(scene.pending(), **settings)


def test_a_plan_follows_what_runs_survey_and_commit(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    # nothing there
    assert groups_of(scene) == ()

    # files that nobody has looked into: two name their topic
    orders, items = (f"{topic}/partition=0/{topic}+0+0000000000.json" for topic in ("s.orders", "s.items"))
    scene.arrive(orders, items, "export.jsonl")
    assert groups_of(scene, group_bytes=4) == (
        FlowGroup(("s.items",), 3),
        FlowGroup(("s.orders",), 3),
        FlowGroup(("*", "!s.items", "!s.orders"), 3),
    )

    # a run looked into them: the export holds both tables, and counts whole for each
    scene.survey(
        lambda file: [shape(file.path, topic) for topic in ("s.items", "s.orders") if topic in file.path or file.topic == "export"]
    )
    assert groups_of(scene, group_bytes=4) == (FlowGroup(("s.items",), 6), FlowGroup(("s.orders",), 6))

    # one is done
    scene.commit("s.items")
    assert groups_of(scene) == (FlowGroup(("s.orders",), 6),)
    scene.commit("s.orders")
    assert groups_of(scene) == ()


def test_a_transactions_end_calls_the_tables_that_wait_for_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    rows, end, more = (f"{topic}/{topic}+0+000000000{n}.json" for topic, n in (("s.t", 0), ("s.transaction", 0), ("s.transaction", 1)))
    scene.arrive(rows, end)
    scene.survey(lambda file: [shape(file.path, file.topic, "transaction" if file.topic == "s.transaction" else "c")])
    scene.state.write_waiting(WaitingFiles(1, {"s.t": (rows,)}))
    assert groups_of(scene) == ()
    scene.arrive(more)
    assert groups_of(scene) == (FlowGroup(("*",), 3),)
