"""Whatever the databases did, whatever the split into files and their order: the versions are what each commit left."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from tests.conftest import Apply
from tests.support.connectors import DIALECTS
from tests.support.events import write_records
from tests.support.histories import Archive
from tests.support.living_histories import LivingArchive
from tests.support.stories import overlaps
from tests.support.tables import read_rows

TOPIC = "source.dbo.histories"
States = list[tuple[str, str] | None]
Key = tuple[int, int]


def changes(states: States) -> States:
    """Leave out what repeats the state before it, and that there was nothing at first."""
    shortened = [state for state, _ in itertools.groupby(states)]
    return shortened[1:] if shortened[:1] == [None] else shortened


def expected(archive: Archive) -> dict[Key, States]:
    """Return what each key held, one state after the other."""
    states_by_key: dict[Key, States] = {}
    for number, states in archive.states.items():
        for key in {row["id"] for rows in states for row in rows}:
            held = [next(((row["v"], row["body"]) for row in rows if row["id"] == key), None) for rows in states]
            states_by_key[number, key] = changes(held)
    return states_by_key


def found(rows: list[dict[str, Any]]) -> dict[Key, States]:
    """Return the same from the versions; an interval that ends before the next begins leaves a gap."""
    states_by_key: dict[Key, States] = {}
    by_key = itertools.groupby(rows, key=lambda row: (row["db"], row["id"]))
    for key, versions in by_key:
        states: States = []
        end = None
        for row in versions:
            assert end is None or tuple(row["__cdc_position"].values()) >= tuple(end.values()), row
            states += [None] if end != row["__cdc_position"] else []
            states.append((row["v"], row["body"]))
            end = row["__cdc_end_position"]
        states_by_key[key] = changes([*states, *([] if end is None else [None])])
    return states_by_key


@pytest.mark.deep
@pytest.mark.parametrize("how", [{}, {"shuffled": True, "again": True}], ids=["in order", "shuffled and repeated"])
@pytest.mark.parametrize("dialect", ["postgresql, large values", "sqlserver"])
def test_versions_are_what_each_commit_left(dialect: str, how: dict[str, Any], apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    check_versions_of(Archive(DIALECTS[dialect], TOPIC, 7, 20), how, apply, spark, tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("dialect", ["postgresql, full identity", "sqlserver"])
def test_versions_are_what_each_commit_left_before_and_behind_a_restore(
    dialect: str, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    """What changed unseen is known from the snapshot that follows: as the state that it found."""
    happenings = ("in part", "restored", "raised", "topic", "in part")
    check_versions_of(LivingArchive(DIALECTS[dialect], TOPIC, 8, 20, happenings=happenings), {}, apply, spark, tmp_path)


def check_versions_of(archive: Archive, how: dict[str, Any], apply: Apply, spark: SparkSession, folder: Path) -> None:
    sizes = [write_records(folder / "a" / f"{n:03d}.jsonl", file).stat().st_size for n, file in enumerate(archive.files(4, **how))]
    flow = CdcFlow(TOPIC, keys=("db", "id"), max_microbatch_bytes=sum(sizes) // 3, stored_as_scd_type=2)
    apply(folder / "a", folder / "lake", flows={TOPIC: flow})
    assert read_rows(spark, str(folder / "lake"), TOPIC).rows == archive.rows
    history = read_rows(spark, str(folder / "lake"), TOPIC, history=True).rows
    assert overlaps(history, ("db", "id")) == []
    versions = found(history)
    wrong = {key: (versions.get(key), held) for key, held in expected(archive).items() if held != versions.get(key, [])}
    assert not wrong, (len(wrong), archive.story(min(wrong)[0]), min(wrong), wrong[min(wrong)])
