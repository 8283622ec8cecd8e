"""LakeView: one lake's flows as the page lists them, kept in memory and looked at anew in the background.

Looking costs a few small files per flow: the checkpoint, the next commit marker, which mostly is not there, and the last one. A request
never waits for all of them longer than :data:`PATIENCE`: it answers with what is known, and says how much is not. Commit markers never
change, so the ones that were read stay.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from airflow_cdc.model.errors import CdcError
from airflow_cdc.model.files import FileSystem, is_local
from airflow_cdc.model.flow.new_topics import HeldTopic
from airflow_cdc.model.look.standing import ArchiveLook, Standing, Waiting, look_at, standing_of, waiting_of
from airflow_cdc.model.look.unsurveyed import Unsurveyed
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.comparison import FlowComparison, FlowComparisons
from airflow_cdc.model.state.lake import ArchiveState, FlowState, archives_in, flows_in
from airflow_cdc.pipeline.look.flow_summaries import connector_of, table_of
from airflow_cdc.pipeline.look.microbatches import DoneMicrobatch
from airflow_cdc.pipeline.look.native_table import NeedsSparkError, open_table
from airflow_cdc.pipeline.look.table_facts import details_of
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.plugins.page.archive_listings import ArchiveListings
from airflow_cdc.plugins.page.carried import carried

FRESH = 15.0
"""Seconds for which an answer is not looked up again."""
PATIENCE = 0.1
"""Seconds that a request waits for a look under way."""
_PATIENCE_WITH_ARCHIVES = 2.0
"""Seconds that a look waits for the archives to be listed; no request does."""
_WHOLE_AGAIN = 600.0
"""Seconds after which a flow's checkpoint is read again, whatever its next commit marker is: its state may be another one."""
_MOST_MARKERS = 50_000
_AT_ONCE = 8
"""Files that are read at the same time for requests."""
_LOOKED_AT_ONCE = 4
"""Flows that a look reads at the same time."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FlowView:
    """One flow as of one look."""

    flow: str
    connector: str | None
    table: str
    is_open: bool
    """Whether the page may open the table: whoever writes the lake's state can name any."""
    standing: Standing
    reason: str
    findings: tuple[str, ...]
    """What its last microbatches did that needs a look."""
    waiting: Waiting
    checkpoint: FlowCheckpoint
    last: DoneMicrobatch | None
    comparison: FlowComparison
    """What its last comparison with the source found; an empty one where there was none."""
    read_at: float
    """When its checkpoint was read, by the monotonic clock."""


@dataclass(frozen=True)
class ArchiveView:
    """One archive as of one look."""

    unsurveyed: Unsurveyed
    held: dict[str, HeldTopic]
    """Topics that are no flows: their records are in the archive's quarantine."""


@dataclass(frozen=True)
class LakeLook:
    """All flows of a lake as of one look."""

    flows: dict[str, FlowView] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    """By flow: why its state cannot be read."""
    total: int = 0
    """Number of flows; while the first look is under way, more than are here."""
    at: float = 0.0
    """When it ended, in seconds since 1970; 0 while the first one is under way."""
    archives: dict[str, ArchiveView] = field(default_factory=dict)
    """By archive's root."""


class LakeView:
    """One lake.

    :param lake: URI of its root.
    :param reach: returns an archive's file system, and the archive's root in it.
    :param may_open: whether the page may open a table, by its URI.
    """

    def __init__(
        self,
        lake: str,
        reach: Callable[[str], tuple[FileSystem, str]] = file_system,
        may_open: Callable[[str], bool] = lambda uri: True,
    ) -> None:
        self.lake = lake
        self.reach = reach
        self.listings = ArchiveListings(reach)
        self._may_open = may_open
        self.fs, self.root = file_system(lake)
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="cdc-page")
        # Of its own: requests would wait behind all flows of a first look.
        self._list_pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="cdc-page-list")
        self._look_pool = ThreadPoolExecutor(_LOOKED_AT_ONCE, thread_name_prefix="cdc-page-look")
        self._lock = threading.Lock()
        self._looking: threading.Event | None = None
        self._look = LakeLook()
        self._looked = -FRESH
        self._failure: Exception | None = None
        self._archives: dict[str, ArchiveState] = {}
        self._markers: OrderedDict[tuple[str, int], DoneMicrobatch] = OrderedDict()
        self._rows: dict[str, tuple[int | None, int | None]] = {}
        self._comparisons: dict[str, tuple[object, FlowComparison]] = {}
        """By flow's folder: the version of the document, and its content."""
        self._compared: dict[str, object] = {}
        """As the last look listed them."""

    def look(self, patience: float = PATIENCE) -> LakeLook:
        """Return the flows as last looked at; begins another look where that is old.

        :raises CdcError, OSError: where the last look failed.
        """
        with self._lock:
            if self._looking is None and time.monotonic() - self._looked > FRESH:
                self._looking = threading.Event()
                threading.Thread(target=carried(self._look_again), args=(self._looking,), name="cdc-page look", daemon=True).start()
            looking = self._looking
        if looking is not None:
            looking.wait(patience)
        if self._failure is not None:
            raise self._failure
        return self._look

    def flow(self, name: str) -> FlowView:
        """Return one flow as it is now.

        :raises KeyError: for a flow that the lake does not know.
        """
        known = self._look.flows.get(name)
        if known is None and name not in flows_in(self.fs, self.root):
            raise KeyError(name)
        return self._view(name, self._look_at_archives(), known)

    def archives_of(self, flow: str) -> list[str]:
        """Return the roots of the archives that hold events of a flow."""
        return [archive.state.archive for archive in self._look_at_archives() if flow in archive.ledger.topics]

    def microbatches(self, flow: str, numbers: Iterable[int]) -> list[DoneMicrobatch]:
        """Return committed microbatches; those without a commit marker have no report."""
        state = FlowState(self.fs, self.root, flow)
        wanted = list(numbers)
        with self._lock:
            known = {number: found for number in wanted if (found := self._markers.get((flow, number)))}
        missing = [number for number in wanted if number not in known]
        # On a local disk threads would wait for one another more than for the disk.
        read = map if is_local(self.fs) else self._pool.map
        for done in read(carried(lambda number: _read(state, number)), missing):
            known[done.number] = done
        self._keep(flow, [known[number] for number in missing])
        return [known[number] for number in wanted]

    def prepare(self, flows: Sequence[FlowView], points: int, patience: float = PATIENCE) -> None:
        """Read what a list shows of flows beside a look, their last microbatches and their tables' rows, for as long as the patience lasts.

        What is not read by then goes on being read, for the next request.
        """
        tasks = [
            self._list_pool.submit(carried(self._prepare), view, points)
            for view in flows
            if self.rows(view) is None or self.last_points(view, points) is None
        ]
        wait(tasks, patience)

    def rows(self, view: FlowView) -> tuple[int | None] | None:
        """Return the number of rows of a flow's table, None in it where only Spark counts them; None as long as it is not read."""
        version, rows = self._rows.get(view.flow, (-1, None))
        return (rows,) if version == view.checkpoint.table_version else None

    def last_points(self, view: FlowView, points: int) -> list[DoneMicrobatch] | None:
        """Return a flow's last microbatches; None as long as they are not read."""
        with self._lock:
            found = [self._markers.get((view.flow, number)) for number in _last_numbers(view, points)]
        return None if None in found else [each for each in found if each]

    def _prepare(self, view: FlowView, points: int) -> None:
        if self.last_points(view, points) is None:
            try:
                self.microbatches(view.flow, _last_numbers(view, points))
            except (CdcError, OSError) as error:
                log.debug("Microbatches of %s are not read: %s", view.flow, error)
        if self.rows(view) is None:
            self._count(view)

    def _count(self, view: FlowView) -> None:
        rows = None
        try:
            table = open_table(view.table) if view.is_open else None
            rows = details_of(table).rows if table else None
        except (NeedsSparkError, OSError) as error:
            log.debug("Rows of %s are not counted: %s", view.table, error)
        self._rows[view.flow] = view.checkpoint.table_version, rows

    def _look_again(self, done: threading.Event) -> None:
        try:
            self._failure = None
            self._look_at_all()
        except Exception as error:  # noqa: BLE001 - whatever a store's client raises, the next request shows it.
            self._failure = error
            log.warning("Lake %s cannot be looked at: %s", self.lake, error)
        finally:
            with self._lock:
                self._looked, self._looking = time.monotonic(), None
            done.set()

    def _look_at_all(self) -> None:
        archives = self._look_at_archives(_PATIENCE_WITH_ARCHIVES)
        # One listing for all flows: most lakes have no comparison.
        self._compared = FlowComparisons(self.fs, self.root).folders()
        names = flows_in(self.fs, self.root)
        before, first = self._look, not self._look.at
        views: dict[str, FlowView] = {}
        unreadable: dict[str, str] = {}
        for name, found in zip(
            names, self._look_pool.map(carried(lambda name: self._try(name, archives, before.flows.get(name))), names), strict=True
        ):
            if isinstance(found, FlowView):
                views[name] = found
            else:
                unreadable[name] = found
            if first:
                # Shown as it grows; a copy, because requests iterate over it.
                self._look = LakeLook(dict(views) if len(views) % 50 == 0 else self._look.flows, dict(unreadable), len(names))
        listed = {archive.state.archive: ArchiveView(archive.unsurveyed, archive.state.held_topics()) for archive in archives}
        self._look = LakeLook(views, unreadable, len(names), time.time(), listed)

    def _try(self, name: str, archives: Sequence[ArchiveLook], known: FlowView | None) -> FlowView | str:
        try:
            return self._view(name, archives, known)
        except (CdcError, OSError) as error:
            return str(error)

    def _view(self, name: str, archives: Sequence[ArchiveLook], known: FlowView | None) -> FlowView:
        state = FlowState(self.fs, self.root, name)
        now = time.monotonic()
        is_known = known is not None and now - known.read_at < _WHOLE_AGAIN and state.marker(known.checkpoint.number + 1) is None
        checkpoint = known.checkpoint if known is not None and is_known else state.checkpoint(write=False)
        waiting = waiting_of(archives, name, checkpoint)
        comparison = self._comparison(name, state.folder)
        findings = (*checkpoint.findings, *comparison.findings)
        standing, reason = standing_of(self.fs, self.root, state, waiting=waiting, archives=archives, findings=findings)
        connector = known.connector if known is not None and known.connector else None
        table = table_of(self.lake, checkpoint)
        return FlowView(
            flow=name,
            connector=connector or connector_of(state, checkpoint, [(archive.state, archive.ledger) for archive in archives]),
            table=table,
            is_open=self._may_open(table),
            standing=standing,
            reason=reason,
            findings=tuple(finding.sentence() for finding in findings),
            waiting=waiting,
            checkpoint=checkpoint,
            last=self._last(state, checkpoint.number),
            comparison=comparison,
            read_at=known.read_at if known is not None and is_known else now,
        )

    def _comparison(self, name: str, folder: str) -> FlowComparison:
        version = self._compared.get(folder)
        if version is None:
            return FlowComparison(name)
        known = self._comparisons.get(folder)
        if known is None or known[0] != version:
            known = self._comparisons[folder] = version, FlowComparisons(self.fs, self.root).of(name, folder)
        return known[1]

    def _last(self, state: FlowState, number: int) -> DoneMicrobatch | None:
        if not number:
            return None
        known = self._markers.get((state.flow, number))
        if known is None:
            known = _read(state, number)
            self._keep(state.flow, [known])
        return known

    def _keep(self, flow: str, done: Iterable[DoneMicrobatch]) -> None:
        with self._lock:
            self._markers.update({(flow, each.number): each for each in done})
            while len(self._markers) > _MOST_MARKERS:
                self._markers.popitem(last=False)

    def _look_at_archives(self, patience: float = 0.0) -> list[ArchiveLook]:
        for state in archives_in(self.fs, self.root):
            # Kept, with the surveys that it has read.
            self._archives.setdefault(state.archive, state)
        states = list(self._archives.values())
        self.listings.refresh(states, patience)
        return [look_at(state, self.listings.of(state.archive)) for state in states]


def _last_numbers(view: FlowView, points: int) -> range:
    last = view.checkpoint.number
    return range(max(1, last - points + 1), last + 1)


def _read(state: FlowState, number: int) -> DoneMicrobatch:
    marker = state.marker(number)
    return DoneMicrobatch(number, marker.committed_at, marker.report) if marker else DoneMicrobatch(number, None, None)
