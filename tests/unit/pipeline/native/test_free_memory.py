"""What a process may still take: the least of what the machine, a container and YARN leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cdc.pipeline.native.free_memory import free_memory

GIB = 1024**3


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 8 GiB available, without containers."""
    monkeypatch.delenv("CONTAINER_ID", raising=False)
    (tmp_path / "meminfo").write_text(f"MemTotal: {16 * GIB // 1024} kB\nMemAvailable:    {8 * GIB // 1024} kB\n")
    return tmp_path


def free(machine: Path) -> int | None:
    return free_memory(machine / "meminfo", machine / "cgroup")


def container(machine: Path, **files: str) -> None:
    for name, text in files.items():
        path = machine / "cgroup" / name.replace("__", "/").replace("_of_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def test_a_machine_shows_what_is_available(machine: Path) -> None:
    assert free(machine) == 8 * GIB


def test_a_container_leaves_its_limit_but_what_it_uses_and_cannot_give_back(machine: Path) -> None:
    container(machine, memory_of_max=str(4 * GIB), memory_of_current=str(3 * GIB), memory_of_stat=f"anon 5\ninactive_file {GIB}")
    assert free(machine) == 2 * GIB


def test_so_does_one_of_the_first_version(machine: Path) -> None:
    container(machine, memory__memory_of_limit_in_bytes=str(4 * GIB), memory__memory_of_usage_in_bytes=str(GIB))
    container(machine, memory__memory_of_stat=f"inactive_file 1\ntotal_inactive_file {GIB}")
    assert free(machine) == 4 * GIB


def test_one_without_a_limit_has_the_machine_s(machine: Path) -> None:
    container(machine, memory_of_max="max", memory_of_current=str(3 * GIB), memory_of_stat="")
    assert free(machine) == 8 * GIB
    container(machine, memory__memory_of_limit_in_bytes=str(2**63 - 4096), memory__memory_of_usage_in_bytes="0")
    assert free(machine) == 8 * GIB


def test_a_container_that_uses_more_than_its_limit_leaves_nothing(machine: Path) -> None:
    container(machine, memory_of_max="10", memory_of_current="20")
    assert free(machine) == 0


def test_yarn_shows_nothing_and_leaves_spark_s_least_overhead(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTAINER_ID", "container_1_0001_01_000001")
    assert free(machine) == 384 * 1024**2


def test_where_nothing_is_shown_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONTAINER_ID", raising=False)
    assert free(tmp_path) is None


def test_this_machine_has_some() -> None:
    assert (free_memory() or 1) > 0
