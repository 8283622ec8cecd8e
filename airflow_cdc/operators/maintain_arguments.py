"""maintain_arguments: the command line of the job ``maintain.py``, whoever submits it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_cdc.hooks.archive import table_globs
from airflow_cdc.model.report.maintenance import MaintenanceSettings

if TYPE_CHECKING:
    from airflow_cdc.operators.maintain import CdcMaintainOperator
    from airflow_cdc.submitters.cdc_maintain_job import CdcMaintainJob


def settings_of(asked: CdcMaintainOperator | CdcMaintainJob) -> MaintenanceSettings:
    """Return the settings that are asked.

    :raises ConfigurationError: for a wrong one, which must not cost the start of Spark.
    """
    # Rendered templates are texts.
    return MaintenanceSettings.from_json(
        {
            "vacuum_after_days": asked.vacuum_after_days,
            "expire_after_days": asked.expire_after_days,
            "purge_from": asked.purge_from,
            "allow_short_retention": asked.allow_short_retention,
            "dry_run": asked.only_plan,
        }
    )


def maintain_arguments(asked: CdcMaintainOperator | CdcMaintainJob, lake: str, settings: MaintenanceSettings, report: str) -> Iterator[str]:
    """Yield the arguments, not encoded.

    :param lake: the lake's root.
    :param report: URI at which the job writes its report.
    """
    yield from ("--lake", lake)
    if asked.flows_file:
        yield from ("--flows", asked.flows_file)
    for glob in table_globs(asked.tables):
        yield from ("--table", glob)
    yield from ("--settings", json.dumps(settings.to_json()), "--report", report)
