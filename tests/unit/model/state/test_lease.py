"""One run at a time writes a flow: leases are taken, renewed, released, taken over, and never held twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

from airflow_cdc.model import state_kind
from airflow_cdc.model.errors import ConcurrentRunError
from airflow_cdc.model.state import lease as module
from airflow_cdc.model.state.lease import Lease, Leases, leases_folder, newest_token

FLOW = "server.db.orders"
QUICK = 0.6


def leases(lake: Path, **settings: Any) -> Leases:
    return Leases(fsspec.filesystem("file"), str(lake), **settings)


def document(lake: Path, token: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(leases_folder(str(lake), FLOW)) / f"{token:08d}.json").read_text())
    return found


def write(lake: Path, token: int, **changes: Any) -> None:
    path = Path(leases_folder(str(lake), FLOW)) / f"{token:08d}.json"
    path.write_text(json.dumps({**document(lake, token), **changes}))


def as_of_another_machine(lake: Path, token: int) -> None:
    write(lake, token, holder={**document(lake, token)["holder"], "host": "elsewhere"})


@pytest.fixture(autouse=True)
def _named() -> Iterator[None]:
    module.name_this_run("dag/run")
    yield
    module.name_this_run("")


def test_a_lease_is_released_and_the_next_has_a_higher_number(tmp_path: Path) -> None:
    with leases(tmp_path).hold(FLOW) as first:
        assert document(tmp_path, 1)["holder"]["run"] == "dag/run"
        assert not document(tmp_path, 1)["released"]
        first.check()
    assert document(tmp_path, 1)["released"]
    with leases(tmp_path, wait_seconds=0).hold(FLOW) as second:
        assert (first.token, second.token) == (1, 2)


def test_a_lease_that_is_held_makes_others_wait_and_then_name_its_holder(tmp_path: Path) -> None:
    heard: list[str] = []
    with leases(tmp_path).hold(FLOW):
        with (
            pytest.raises(ConcurrentRunError, match="dag/run") as error,
            leases(tmp_path, wait_seconds=0.3, progress=heard.append).hold(FLOW),
        ):
            pass
        assert error.value.transient
        assert heard == [
            f"{FLOW}: waits for {document_holder(tmp_path)}, which has been writing it since {document(tmp_path, 1)['taken_at']}"
        ]
        # Another flow is nobody's concern.
        with leases(tmp_path, wait_seconds=0).hold("other"):
            pass


def document_holder(lake: Path) -> str:
    holder = document(lake, 1)["holder"]
    return f"process {holder['process']} on {holder['host']} ({holder['run']})"


def test_a_run_that_waits_goes_on_as_soon_as_the_lease_is_released(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with leases(tmp_path, seconds=QUICK).hold(FLOW):
            order.append("second")

    with leases(tmp_path, seconds=QUICK).hold(FLOW):
        waiting = threading.Thread(target=second)
        waiting.start()
        # Longer than a lease lasts that nobody renews.
        time.sleep(3 * QUICK)
        order.append("first")
    waiting.join(10)
    assert order == ["first", "second"]


def test_a_lease_of_another_machine_that_nobody_renews_is_taken_over_and_its_holder_writes_nothing_more(tmp_path: Path) -> None:
    silent = leases(tmp_path, seconds=QUICK).take(FLOW)
    as_of_another_machine(tmp_path, 1)
    begun = time.monotonic()

    taken = leases(tmp_path, seconds=QUICK).take(FLOW)

    assert taken.token == 2
    assert time.monotonic() - begun >= QUICK
    with pytest.raises(ConcurrentRunError, match="could not be renewed"):
        silent.check()
    silent.renew()
    assert "lease 2" in silent.lost


@pytest.mark.slow
def test_a_renewed_lease_of_another_machine_is_not_taken_over(tmp_path: Path) -> None:
    # Long enough for a machine on which the thread that renews may get no turn for a second.
    seconds = 3.0
    with leases(tmp_path, seconds=seconds).hold(FLOW):
        # Its number counts up, whatever the rest says.
        folder = Path(leases_folder(str(tmp_path), FLOW))
        begun = document(tmp_path, 1)["renewals"]
        with pytest.raises(ConcurrentRunError), leases(tmp_path, seconds=seconds, wait_seconds=2 * seconds).hold(FLOW):
            pass
        assert document(tmp_path, 1)["renewals"] >= begun + 2
        assert [path.name for path in folder.iterdir() if path.suffix == ".json"] == ["00000001.json"]


def test_a_lease_of_a_process_of_this_machine_that_was_killed_is_taken_over_at_once(tmp_path: Path) -> None:
    program = (
        "import sys, fsspec; from airflow_cdc.model.state.lease import Leases;"
        f"Leases(fsspec.filesystem('file'), {str(tmp_path)!r}).take({FLOW!r});"
        "sys.stdout.write('held'); sys.stdout.flush(); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.read(4) == "held"
        with pytest.raises(ConcurrentRunError, match=f"process {process.pid} on "):
            leases(tmp_path, wait_seconds=0.2).take(FLOW)
        process.kill()
        process.wait()
        assert leases(tmp_path, wait_seconds=0).take(FLOW).token == 2


@pytest.mark.parametrize("changes", [{"space": "another container"}, {"space": ""}, {"host": "elsewhere"}])
def test_a_process_number_means_nothing_on_another_machine_or_in_another_container(tmp_path: Path, changes: dict[str, str]) -> None:
    leases(tmp_path).take(FLOW)
    gone = {"process": 2**22 + 1, "started": "1", **changes}
    write(tmp_path, 1, holder={**document(tmp_path, 1)["holder"], **gone})
    with pytest.raises(ConcurrentRunError):
        leases(tmp_path, wait_seconds=0.2).take(FLOW)


def test_a_process_that_got_the_number_of_the_holder_is_not_the_holder(tmp_path: Path) -> None:
    holder = replace(module.this_process(), process=os.getppid(), started="1")
    assert holder.is_gone
    assert not module.this_process().is_gone


def test_a_store_that_does_not_answer_for_too_long_ends_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with leases(tmp_path, seconds=QUICK).hold(FLOW) as lease:
        monkeypatch.setattr(state_kind, "replace_json", _refuse)
        lease.check()
        time.sleep(QUICK)
        with pytest.raises(ConcurrentRunError, match="could not be renewed"):
            lease.check()


def _refuse(*_: Any) -> None:
    raise OSError("the store does not answer")


def test_of_many_runs_one_at_a_time_holds_the_lease(tmp_path: Path) -> None:
    inside, most, tokens = 0, 0, []
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            with leases(tmp_path, seconds=QUICK).hold(FLOW) as lease:
                with guard:
                    inside += 1
                    most = max(most, inside)
                    tokens.append(lease.token)
                time.sleep(0.005)
                lease.check()
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == 1
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 30
    folder = Path(leases_folder(str(tmp_path), FLOW))
    assert len([path for path in folder.iterdir() if path.suffix == ".json"]) <= 6


def test_a_run_that_looked_before_others_came_and_went_does_not_take_a_number_that_was_removed(tmp_path: Path) -> None:
    ours = leases(tmp_path)
    for _ in range(8):
        with leases(tmp_path).hold(FLOW):
            pass
    folder = leases_folder(str(tmp_path), FLOW)
    assert newest_token(ours.fs, folder) == 8
    assert not (Path(folder) / "00000002.json").exists()

    create: Callable[[str, str, int], Lease | None] = ours._create
    assert create(folder, FLOW, 2) is None

    assert not (Path(folder) / "00000002.json").exists()
    assert ours.take(FLOW).token == 9
