"""The demo's folder: an Airflow home, an archive and a lake of its own."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import airflow_cdc

DAG_ID = "cdc_merge"

_MARKER = ".airflow-cdc-demo"


class FolderTakenError(RuntimeError):
    """Raised when the folder holds files that the demo did not make."""


@dataclass(frozen=True)
class Stage:
    """The paths of one demo."""

    folder: Path

    @property
    def archive(self) -> Path:
        """The archive's root."""
        return self.folder / "archive"

    @property
    def lake(self) -> Path:
        """The lake's root."""
        return self.folder / "lake"

    @property
    def airflow_home(self) -> Path:
        """The Airflow home."""
        return self.folder / "airflow"

    @property
    def dag_file(self) -> Path:
        """The Dag file, as a user would install it."""
        return self.airflow_home / "dags" / f"{DAG_ID}.py"


def set_stage(folder: Path) -> Stage:
    """Recreate the demo's folder.

    :raises FolderTakenError: when the folder holds something else: it is wiped, so a mistyped path must not cost anybody's files.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARKER).is_file():
        raise FolderTakenError(f"{folder} exists and was not made by this demo, which wipes its folder. Give another one.")
    shutil.rmtree(folder, ignore_errors=True)
    stage = Stage(folder.resolve())
    stage.archive.mkdir(parents=True)
    (stage.folder / _MARKER).touch()
    stage.dag_file.parent.mkdir(parents=True)
    shutil.copy(shipped_dag(), stage.dag_file)
    return stage


def shipped_dag() -> Path:
    """Return the example Dag: beside the package in a checkout, inside it in a wheel."""
    package = Path(airflow_cdc.__file__).parent
    places = (package.parent / "dags" / f"{DAG_ID}.py", package / "demo" / "dags" / f"{DAG_ID}.py")
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise FileNotFoundError(f"The example Dag {DAG_ID} is neither at {places[0]} nor at {places[1]}.")
    return found


def airflow_environment(stage: Stage) -> dict[str, str]:
    """Return the environment of an Airflow that has only the demo's three connections and nothing of the user's own Airflow."""
    connections = {
        "CDC_ARCHIVE_DEFAULT": {"conn_type": "cdc_archive", "host": str(stage.archive)},
        "CDC_LAKE_DEFAULT": {"conn_type": "cdc_lake", "host": str(stage.lake)},
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "local[2]"},
    }
    # Without cached bytecode every start of Airflow would compile it again.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW") and name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **kept,
        "AIRFLOW_HOME": str(stage.airflow_home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(stage.dag_file.parent),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{stage.airflow_home / 'airflow.db'}",
        "NO_COLOR": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(Path(airflow_cdc.__file__).parents[1]), os.environ.get("PYTHONPATH")))),
        **{f"AIRFLOW_CONN_{name}": json.dumps(fields) for name, fields in connections.items()},
    }
