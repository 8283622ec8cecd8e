"""JobArguments: the arguments of a submitted job, made when Airflow renders the fields of the task that submits it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.job_argument import all_arguments, as_argument
from airflow_cdc.model.report.try_reports import report_name
from airflow_cdc.model.storage import StorageSettings
from airflow_cdc.operators.airflow_errors import as_airflow_errors
from airflow_cdc.operators.hand_over import run_name
from airflow_cdc.submitters.task_of_report import task_of_report

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_cdc.submitters.service_job import ServiceJob

_NOT_RENDERED = ("conf", "jars", "packages", "py_files", "release")
"""Fields that are no arguments: they stand in the payload itself, which the submitting operator renders."""


@dataclass(frozen=True)
class JobArguments:
    """A value in a templated field of any operator: Airflow calls :meth:`resolve` where it would render a text.

    No text with ``{{ }}`` could do this: the archive, the lake and their settings come from connections, the tables are several arguments,
    and an operator with ``template_ext`` takes a text that ends in ``.json``, such as the report's URI, for a template file.
    """

    job: ServiceJob
    service: str
    """Name of the service, for errors."""
    before: tuple[str, ...] = ()
    """What stands before the arguments in the same list. (templated)"""

    def resolve(self, context: Context, **_: Any) -> list[str]:
        """Return the list of texts, each in the form of :func:`airflow_cdc.model.job_argument.as_argument` from the job's arguments on.

        :raises AirflowFailException: where a connection or a setting is wrong, or a credential would be shown.
        """
        with as_airflow_errors():
            return [*(_rendered(text, context) for text in self.before), *map(as_argument, self._arguments(context))]

    def serialize(self) -> list[str]:
        """Return what Airflow shows until the field is rendered; the same at each parse, or each would be another version of the Dag."""
        return [*self.before, f"<arguments of {type(self.job).__name__} for {self.job.lake_conn_id}>"]

    def _arguments(self, context: Context) -> Iterator[str]:
        names = (item.name for item in fields(self.job) if item.name not in _NOT_RENDERED)
        job = replace(self.job, **{name: _rendered(getattr(self.job, name), context) for name in names})
        lake, instance = CdcLakeHook(job.lake_conn_id), context["ti"]
        report = report_name(task_of_report(instance, instance.task_id), instance.try_number)
        yield from job.asked(context, f"{lake.root}/{report}")
        yield from run_name(context)
        settings = StorageSettings()
        for store in job.stores():
            settings = settings.joined(store.storage_settings())
        yield from storage_arguments(settings, self.service)


@dataclass(frozen=True)
class NamedArguments(JobArguments):
    """The same as one text, for a service that takes each name once (:data:`airflow_cdc.model.job_argument.ALL_ARGUMENTS`)."""

    def resolve(self, context: Context, **_: Any) -> str:  # type: ignore[override]
        """Return the text.

        :raises AirflowFailException: as :meth:`JobArguments.resolve`.
        """
        with as_airflow_errors():
            return all_arguments(list(self._arguments(context)))

    def serialize(self) -> str:  # type: ignore[override]
        """Return what Airflow shows until the field is rendered."""
        return super().serialize()[0]


def storage_arguments(settings: StorageSettings, service: str) -> tuple[str, ...]:
    """Return the job's ``--storage`` with its value: endpoint, region and the like; empty where the connections declare nothing.

    :raises ConfigurationError: where a connection holds a credential or a login, which the service would show in its own pages.
    """
    if settings.has_secret or settings.files:
        raise ConfigurationError(
            f"A storage connection holds credentials, and the arguments of a job are shown by {service} and in Airflow's rendered fields.",
            next_step="Take the keys out of the storage connection, and give the job an identity of its own: the service's execution role, "
            "service account or instance profile (docs/how-to/run-on-your-spark-service.md#credentials).",
        )
    if settings.environment:
        raise ConfigurationError(
            f"A storage connection sets {', '.join(settings.environment)}, and {service} starts the job with its own environment.",
            next_step="Take the login out of the storage connection, and run the job as that user.",
        )
    if not (settings.hadoop or settings.file_systems):
        return ()
    return "--storage", json.dumps(settings.for_job().to_json())


def _rendered(value: Any, context: Context) -> Any:
    """Return a text, or each text of a sequence, rendered by the task's own template environment."""
    if isinstance(value, str):
        # Not by the task's render_template: it would take a path for a template file.
        return context["task"].get_template_env(context.get("dag")).from_string(value).render(context)
    if isinstance(value, (list, tuple)):
        return tuple(_rendered(item, context) for item in value)
    return value
