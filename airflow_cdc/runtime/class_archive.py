"""class_archive: the classes of a small job, parsed and verified once by the JVM and mapped by each later one (AppCDS).

A job that merges little spends a third of its time loading classes. The JVM ignores an archive of another JVM build or of other jars, and
runs without it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from airflow_cdc.runtime.delta_jars import delta_jars
from airflow_cdc.runtime.layout import RuntimeInstallError, runtime_folder
from airflow_cdc.runtime.spark import DRIVER_OPTIONS, spark_environment, spark_options

SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=200m"
"""JVM options of a job with little to do on one machine; the archive is made and used with the same options."""
_MASTER = "local[2]"
_SECONDS = 900
_LINES_SHOWN = 12
_TOPIC = "warm.up.rows"


def class_archive() -> Path:
    """Return the path of the archive, whether it exists or not."""
    return runtime_folder() / "classes.jsa"


def archived_classes() -> dict[str, str]:
    """Return the Spark options by which a small job uses the archive; empty where there is no archive.

    They replace ``spark.jars``: only classes of the class path are archived, and Spark loads its jars separately.
    """
    jars, archive = delta_jars(), class_archive()
    if not jars or not archive.is_file():
        return {}
    return {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": f"-Xshare:auto -XX:SharedArchiveFile={archive}",
    }


def archive_classes() -> Path:
    """Run a small merge and archive the classes that it loaded; takes a minute, and 200 MB.

    :raises RuntimeInstallError: when there are no jars, or the merge fails.
    """
    jars, archive = delta_jars(), class_archive()
    if not jars:
        raise RuntimeInstallError("There are no Delta jars.", next_step="run `python -m airflow_cdc.runtime install` first.")
    with tempfile.TemporaryDirectory(prefix="classes-", dir=runtime_folder()) as scratch:
        folder, draft = Path(scratch), Path(scratch) / "classes.jsa"
        _write_events(folder / "archive")
        options = {name: value for name, value in {**spark_options(), **DRIVER_OPTIONS}.items() if name != "spark.jars"}
        options["spark.ui.enabled"] = "false"
        options["spark.pyspark.driver.python"] = sys.executable
        options["spark.driver.extraClassPath"] = os.pathsep.join(map(str, jars))
        options["spark.driver.extraJavaOptions"] = f"{SMALL_JVM} -XX:ArchiveClassesAtExit={draft}"
        log = _submit(folder, options)
        if not draft.is_file():
            raise RuntimeInstallError(
                f"The JVM archived no classes:\n{log}", next_step="see that Java is 17 or newer; jobs run without the archive, too."
            )
        draft.replace(archive)
    return archive


def _submit(folder: Path, options: dict[str, str]) -> str:
    """Merge the events under a spark-submit as a task's is, and return the end of its log."""
    package = Path(__file__).parents[1]
    environment = {**os.environ, **spark_environment(_MASTER), "PYTHONPATH": str(package.parent)}
    # One file a microbatch: the second one meets a table that is there.
    flows = json.dumps({"flows": [{"topic": _TOPIC, "max_microbatch_bytes": 1}]})
    job = [str(package / "jobs" / "apply.py"), "--archive", str(folder / "archive"), "--lake", str(folder / "lake"), "--flows", flows]
    given = [part for name, value in options.items() for part in ("--conf", f"{name}={value}")]
    submit = [f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", _MASTER, *given, *job, "--report", str(folder / "report.json")]
    ended = subprocess.run(
        submit, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_SECONDS, check=False, cwd=folder
    )
    log = "\n".join(ended.stdout.splitlines()[-_LINES_SHOWN:])
    if ended.returncode:
        raise RuntimeInstallError(f"The merge by which classes are archived failed:\n{log}", next_step="correct that, then run again.")
    return log


def _write_events(archive: Path) -> None:
    """Write snapshot reads of a table, then an update, a delete and a create."""
    archive.mkdir()
    changes = [[("r", key) for key in range(10)], [("u", 1), ("d", 2), ("c", 11)]]
    offset = 0
    for number, file in enumerate(changes):
        lines = []
        for op, key in file:
            offset += 1
            row = {"id": key, "name": f"name {offset}", "amount": "1.50"}
            source = {"connector": "postgresql", "snapshot": str(op == "r").lower(), "txId": offset, "lsn": offset, "ts_ms": offset}
            source |= {"sequence": json.dumps([None if op == "r" else str(offset), str(offset)]), "schema": "up", "table": "rows"}
            images = {"before": {"id": key}, "after": None} if op == "d" else {"before": None, "after": row}
            value = {**images, "source": source, "op": op, "ts_ms": offset}
            lines.append(json.dumps({"topic": _TOPIC, "partition": 0, "offset": offset, "key": {"id": key}, "value": value}))
        (archive / f"{number}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
