"""The watcher in Airflow's own triggerer: its process, its database, and the state that 3.3 keeps for each asset."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetWatcher
from packaging.version import Version

from airflow_cdc.triggers.archive_event import CdcArchiveEventTrigger

KEEPS_STATE = Version(version("apache-airflow-core")) >= Version("3.3")
pytestmark = pytest.mark.usefixtures("airflow_database")


@pytest.fixture
def watch(scene: Any) -> Iterator[Callable[..., list[Asset]]]:
    """Make a Dag known to Airflow that is scheduled on one watched asset a trigger; it is paused again after the test."""
    dags = []

    def begin(**triggers: CdcArchiveEventTrigger) -> list[Asset]:
        assets = [
            Asset(name=name, uri=f"x-cdc://watched/{name}", watchers=[AssetWatcher(name="files", trigger=trigger)])
            for name, trigger in triggers.items()
        ]
        with DAG(dag_id=f"on_{'_'.join(triggers)}", schedule=assets, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)) as dag:
            scene.merge()
        dags.append(dag)
        _save(scene, dag, is_paused=False)
        return assets

    yield begin
    for dag in dags:
        _save(scene, dag, is_paused=True)


def _save(scene: Any, dag: DAG, *, is_paused: bool) -> None:
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    scene.save(dag)
    with create_session() as session:
        model = session.get(DagModel, dag.dag_id)
        assert model
        model.is_paused = is_paused
    # Airflow looks for watchers when it parses, at those of the Dags that are active then.
    scene.save(dag)


def events_of(asset: Asset) -> list[Any]:
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        found = session.scalars(
            select(AssetEvent)
            .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
            .where(AssetModel.name == asset.name)
            .order_by(AssetEvent.id)
        )
        return [event.extra["payload"] for event in found]


@contextmanager
def triggerer() -> Iterator[Callable[..., None]]:
    """Run Airflow's triggerer; yields what lets it run until something is so, or for some seconds."""
    from airflow.jobs.job import Job
    from airflow.jobs.triggerer_job_runner import TriggererJobRunner, TriggerRunnerSupervisor
    from airflow.utils.session import create_session

    with create_session() as session:
        job = Job(job_type=TriggererJobRunner.job_type)
        session.add(job)
        session.flush()
        session.expunge(job)
    supervisor = TriggerRunnerSupervisor.start(job=job, capacity=10)

    def run(until: Callable[[], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end, "it has not come"
            # What its own loop does between two heartbeats.
            supervisor.load_triggers()
            supervisor._service_subprocess(1)
            supervisor.handle_events()

    try:
        yield run
    finally:
        supervisor.kill(force=True)


def test_two_watchers_with_equal_arguments_are_one_that_announces_to_both_assets(
    scene: Any, watch: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    one, other = watch(one=CdcArchiveEventTrigger(poke_interval=0.2), other=CdcArchiveEventTrigger(poke_interval=0.2))
    scene.land("0000000000")
    with triggerer() as run:
        run(lambda: bool(events_of(one) and events_of(other)))
    assert events_of(one) == events_of(other) == [{"files": 1, "topics": {"server.db.orders": 1}}]
    message = "give each trigger a name" if KEEPS_STATE else "keeps no state of assets"
    assert message in capfd.readouterr().out


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.usefixtures("needs_state_stores")
def test_watchers_with_names_are_two_whose_assets_remember_over_a_restart(
    scene: Any, watch: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    from airflow.models.asset import AssetModel
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    def remembered() -> dict[str, str]:
        """Return the keys of the assets' states, by asset."""
        with create_session() as session:
            of_asset = select(AssetModel.name, AssetStateStoreModel.key, AssetStateStoreModel.value)
            found = session.execute(of_asset.join(AssetModel, AssetModel.id == AssetStateStoreModel.asset_id))
            return {name: key for name, key, value in found if name in {"third", "fourth"} and '"count": 1' in str(value)}

    third, fourth = watch(**{name: CdcArchiveEventTrigger(poke_interval=0.2, name=name) for name in ("third", "fourth")})
    scene.land("0000000000")
    # Until both are written down, which is a while after the event.
    with triggerer() as run:
        run(lambda: len(remembered()) == 2)
    assert remembered() == {name: f"cdc_announced_files_{name}" for name in ("third", "fourth")}
    scene.land("0000000001")
    with triggerer() as run:
        run(lambda: len(events_of(third)) + len(events_of(fourth)) == 4)
    assert events_of(third) == events_of(fourth) == [{"files": 1, "topics": {"server.db.orders": 1}}] * 2
    assert "cannot be used" not in capfd.readouterr().out
