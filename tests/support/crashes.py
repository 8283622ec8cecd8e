"""Apply an archive by a process that crashes once after every single effect of every microbatch."""

from __future__ import annotations

from pathlib import Path

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.report.apply_report import ApplyReport
from tests.conftest import Apply

MOST_CRASHES = 200


class CrashError(BaseException):
    """The process ended here."""


def apply_through_crashes(apply: Apply, archive: Path, lake: Path, flow: CdcFlow) -> tuple[ApplyReport, set[str]]:
    """Return the report of the run that came to its end, and the effects after which one before it crashed."""
    crashed: set[tuple[str, int]] = set()

    def crash_once(effect: str) -> None:
        batch = len(list((lake / "_cdc/flows" / flow.name / "commits").glob("*.json")))
        if (effect, batch) not in crashed:
            crashed.add((effect, batch))
            raise CrashError(effect)

    for _ in range(MOST_CRASHES):
        try:
            report: ApplyReport = apply(archive, lake, flows={flow.name: flow}, after_effect=crash_once)
        except CrashError:
            continue
        return report, {effect for effect, _ in crashed}
    raise AssertionError(f"no end after {MOST_CRASHES} crashes: {sorted(crashed)}")
