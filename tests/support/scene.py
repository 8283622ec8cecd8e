"""An archive, a lake, and runs that survey and commit without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import Survey, TopicShape
from airflow_cdc.model.look.new_files import find_new_files
from airflow_cdc.model.look.pending import PendingFiles, pending_files
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.microbatch import PlanPosition, next_microbatch
from tests.support.surveys import FS, shape


class Scene:
    """An archive, a lake, and runs that survey and commit without Spark."""

    def __init__(self, folder: Path) -> None:
        self.archive, self.lake = folder / "archive", folder / "lake"
        self.archive.mkdir()
        self.fs: Any = FS
        self.root = str(self.archive)
        self.state = ArchiveState(FS, str(self.lake), str(self.archive))

    def arrive(self, *paths: str) -> None:
        for path in paths:
            file = self.archive / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("{}\n")

    def survey(
        self,
        shapes_of: Callable[[ArchivedFile], list[TopicShape]] = lambda file: [shape(file.path, file.topic)],
        *,
        now: float | None = None,
    ) -> list[str]:
        """Look into what is new, as a run does, and return its paths."""
        ledger = self.state.ledger()
        look = find_new_files(self.fs, self.root, self.state, ledger, now=now)
        found = tuple(item for file in look.files for item in (shapes_of or _named)(file))
        if look.files:
            changed = self.state.replaced(look.files, ledger)
            assert self.state.add(Survey(self.state.archive, ledger.surveyed_through + 1, look.files, found, replaces=changed))
        self.state.write_looked(look.looked)
        return [file.path for file in look.files]

    def commit(self, topic: str, *, max_bytes: int = 10**9, **report: Any) -> None:
        flow = FlowState(FS, str(self.lake), topic)
        ledger, checkpoint = self.state.ledger(), flow.checkpoint()
        planned = checkpoint.planned.get(self.state.archive, PlanPosition())
        surveys = self.state.surveys(max(planned.survey, ledger.topics[topic]), ledger.surveyed_through)
        plan = next_microbatch(
            flow=topic, number=checkpoint.number + 1, archive=self.state.archive, surveys=surveys, planned=planned, max_bytes=max_bytes
        )
        assert plan is not None
        assert flow.write_intent(plan)
        flow.write_commit(BatchReport(topic, plan.number, len(plan.files), plan.size, **report), "table")

    @property
    def places(self) -> dict[str, Any]:
        """Where both lie, as the model's questions are asked with it."""
        roots = {"archive_root": self.root, "archive": self.state.archive, "lake_root": str(self.lake)}
        return {"archive_fs": self.fs, "lake_fs": FS, **roots}

    def pending(self, *tables: str, **interval: Any) -> PendingFiles:
        return pending_files(**self.places, tables=tables, **interval)

    def waiting(self, *tables: str) -> tuple[list[str], dict[str, int], int]:
        found = self.pending(*tables)
        assert bool(found) is (found.count > 0)
        return [file.path for file in found.unsurveyed], found.planned or {}, found.count


def _named(file: ArchivedFile) -> list[TopicShape]:
    return [shape(file.path, file.topic)]
