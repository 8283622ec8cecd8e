"""Pass the storage's credentials to the job: in a file that only this user can read, never on a command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.storage import StorageSettings
from airflow_cdc.operators.job_report import ReportPlace
from airflow_cdc.operators.spark_target import SparkTarget
from airflow_cdc.runtime.private_file import write_privately

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


def hand_over(
    settings: StorageSettings, target: SparkTarget, place: ReportPlace, conf: dict[str, Any], *, remote: str | None = None
) -> tuple[str, ...]:
    """Return the job's ``--storage`` with its value: a file's path, or the settings themselves where they hold no secret.

    The file is beside the report, in a private folder that is removed with the task; the job removes it after reading it.

    :param conf: Spark's options as they are submitted.
    :param remote: URL of the Spark Connect server that the job is a client of; the options are then passed in the file too.
    :raises ConfigurationError: when a secret would have to travel to another machine.
    """
    if settings.files and target.is_connect:
        raise ConfigurationError(
            f"A storage connection holds a key file's text, and the Spark Connect server ({target.master}) would not find that file.",
            next_step="Put the key file where the server runs and name it in key_path, or give the server credentials of its own.",
        )
    if settings.environment and target.is_connect:
        names = ", ".join(settings.environment)
        raise ConfigurationError(
            f"A storage connection sets {names} for Spark, and the Spark Connect server ({target.master}) runs with its own.",
            next_step="Take the login out of the storage connection, and start the server as that user.",
        )
    if remote:
        of_connections = settings.for_job()
        options = {name: str(value) for name, value in conf.items()}
        job = replace(of_connections, spark={**options, **of_connections.spark}, remote=remote)
        path = Path(place.path).with_name("storage.json")
        write_privately(path, json.dumps(job.to_json()))
        return "--storage", str(path)
    if not (settings.hadoop or settings.file_systems):
        return ()
    if not settings.has_secret:
        return "--storage", json.dumps(settings.for_job().to_json())
    if not target.driver_is_here:
        raise ConfigurationError(
            f"A storage connection holds credentials, and the job's driver runs in the cluster ({target.master}): "
            "they would show in its command line.",
            next_step="Take the keys out of the storage connection and give the cluster credentials of its own (instance role, "
            "Hadoop credential provider, Kubernetes secret), or use deploy mode client.",
        )
    if settings.files and not target.is_local:
        raise ConfigurationError(
            f"A storage connection holds a key file's text, and the executors of {target.master} would not find that file.",
            next_step="Put the key file on every machine and name it in key_path, or give the machines credentials of their own.",
        )
    folder = Path(place.path).parent
    for name, text in settings.files.items():
        write_privately(folder / name, text)
    path = folder / "storage.json"
    write_privately(path, json.dumps(settings.in_folder(str(folder)).for_job(conf.get("spark.redaction.regex")).to_json()))
    return "--storage", str(path)


def run_name(context: Context) -> tuple[str, str]:
    """Return the job's ``--run-name`` with its value: the task instance, for those who wait for a flow that the job writes."""
    instance = context["ti"]
    number = instance.map_index
    index = "" if number is None or number < 0 else f"[{number}]"
    return "--run-name", f"{instance.dag_id}.{instance.task_id}{index}, {instance.run_id}, try {instance.try_number}"
