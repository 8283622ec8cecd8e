"""``python -m benchmarks.cold_command ARCHIVE LAKE REPORT``: print the very command that a merge task runs, as JSON.

A process of its own: Airflow wants a home before it is imported, and whoever measures need not carry it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_cdc.jobs.die_with_parent import SUBMITTER_VARIABLE
from benchmarks.submitted import MASTER


@dataclass(frozen=True)
class MergeCommand:
    """A command and the variables that it is started with beside the process's own."""

    command: Sequence[str]
    environment: dict[str, str]


def merge_command(archive: Path, lake: Path, report: Path) -> MergeCommand:
    """Return what a merge task of these folders would run now; it depends on how much waits."""
    ask = [sys.executable, "-m", __name__, *(str(path.absolute()) for path in (archive, lake, report))]
    with tempfile.TemporaryDirectory(prefix="airflow-") as home:
        environment = {**os.environ, **_airflow(home, archive, lake)}
        output = subprocess.run(ask, env=environment, check=True, capture_output=True, text=True).stdout
    document = json.loads(output.splitlines()[-1])
    # The job ends with the task that submitted it, which is this process.
    return MergeCommand(document["command"], {**document["environment"], SUBMITTER_VARIABLE: str(os.getpid())})


def _airflow(home: str, archive: Path, lake: Path) -> dict[str, str]:
    connections = {
        "cdc_archive_default": {"conn_type": "cdc_archive", "host": str(archive.absolute())},
        "cdc_lake_default": {"conn_type": "cdc_lake", "host": str(lake.absolute())},
        "spark_default": {"conn_type": "spark", "host": MASTER},
    }
    as_variables = {f"AIRFLOW_CONN_{name.upper()}": json.dumps(fields) for name, fields in connections.items()}
    return {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "PYTHONPATH": str(Path(__file__).parents[1]), **as_variables}


def _built(report: str) -> dict[str, Any]:
    """Let a merge task prepare itself, and return what it would submit."""
    from airflow_cdc.operators.merge import CdcMergeOperator

    class Asked(Exception):  # noqa: N818 - it is no error: it ends the task where it would submit.
        """Carries what would be submitted."""

    class Asking(CdcMergeOperator):
        def _run_job(self, *_: Any) -> Any:
            hook = self._get_hook()
            command = hook._build_spark_submit_command(self.application)
            place = command.index("--report") + 1
            raise Asked({"command": [*command[:place], report, *command[place + 1 :]], "environment": hook._env or hook._env_vars or {}})

    try:
        context: Any = {"ti": SimpleNamespace(dag_id="bench", task_id="merge", run_id="bench", map_index=-1, try_number=1)}
        Asking(task_id="merge").execute(context)
    except Asked as asked:
        built: dict[str, Any] = asked.args[0]
        return built
    raise RuntimeError("the task submitted nothing")


if __name__ == "__main__":
    sys.stdout.write(f"\n{json.dumps(_built(sys.argv[3]))}\n")
