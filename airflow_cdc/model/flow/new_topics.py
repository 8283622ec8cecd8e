"""New topics: which topics of an archive become flows, and which ones' records go to the archive's quarantine instead."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import accumulate

from airflow_cdc.model.archive.topics import NO_TOPIC, is_legal_topic, printable
from airflow_cdc.model.errors import ConfigurationError, RejectReason
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.plain_json import JsonObject

_DECLARE = "declare it under flows: in the flows file, with a table of its own"


class OnNewTopic(str, Enum):
    """What happens to a topic without flow, route and table in the lake."""

    CREATE = "create"
    """It becomes a flow with a table of its name."""
    QUARANTINE = "quarantine"
    """Its records go to the archive's quarantine until it is declared."""
    STOP = "stop"
    """It becomes a flow that stops and leaves the decision to a person."""


@dataclass(frozen=True)
class HeldTopic(JsonObject):
    """A topic that is no flow: its records are in the archive's quarantine."""

    topic: str
    """As the records name it; :data:`~airflow_cdc.model.archive.topics.NO_TOPIC` for lines that name none."""
    reason: RejectReason
    detail: str = ""
    """Details that the reason does not cover."""
    files: int = 0
    """Files with records of the topic."""
    records: int = 0
    through: int = 0
    """Number of the last survey whose records are in the quarantine."""
    added: int = 0
    """Records added by this run."""

    @property
    def is_refused(self) -> bool:
        """Whether no flow can take the topic; otherwise it is the settings that hold it until it is declared."""
        return self.reason is not RejectReason.UNDECLARED_TOPIC

    def __str__(self) -> str:
        name = f"topic {printable(self.topic)}" if self.topic else "no topic"
        detail = f": {self.detail}" if self.detail else ""
        return f"{name}: {self.records} records in {self.files} files are in the archive's quarantine: {self.reason.value}{detail}"


@dataclass(frozen=True)
class HeldTopics(JsonObject):
    """The held topics of one archive, as a state document."""

    archive: str
    """URI of the archive's root."""
    topics: tuple[HeldTopic, ...] = ()


@dataclass
class SortedTopics:
    """The topics of an archive, sorted into flows and others."""

    flows: dict[str, CdcFlow] = field(default_factory=dict)
    """Settings of the flows."""
    held: dict[str, HeldTopic] = field(default_factory=dict)
    """The topics that are no flows."""
    refused: list[str] = field(default_factory=list)
    """New topics whose flow stops by the settings; they are among ``flows`` too."""


@dataclass(frozen=True)
class TopicGate:
    """Rules that sort an archive's topics."""

    settings: Mapping[str, CdcFlow]
    """Settings of flows by topic; iteration yields only topics with an entry of their own."""
    lake: str
    """URI of the lake's root."""
    on_new_topic: OnNewTopic
    find_known: Callable[[], Collection[str]]
    """Returns the flows that have state in the lake; called only for a topic in doubt."""
    folds_case: bool = False
    """Whether the lake's store is case-insensitive."""

    def sort(self, topics: Iterable[str]) -> SortedTopics:
        """Sort topics into flows and others.

        A name that the settings list is a flow's. Any other name must be legal in Kafka: a record may name anything, and the name becomes a
        folder. A topic that cannot have its own folder is held and stops no flow.

        :raises ConfigurationError: when a listed topic, or one with a table, cannot have the path that the settings name.
        """
        found = SortedTopics()
        undeclared: list[str] = []
        for topic in sorted(topics):
            if held := self._illegal(topic):
                found.held[topic] = held
                continue
            try:
                flow = self.settings.get(topic)
            except ConfigurationError as problem:
                if topic in self._declared or topic in self._known:
                    raise
                found.held[topic] = HeldTopic(topic, RejectReason.ILLEGAL_TOPIC_NAME, problem.message)
                continue
            if flow is None:
                undeclared.append(topic)
            else:
                self._take(found, flow)
        taken = self._places(found.flows.values())
        for topic in undeclared:
            self._sort_undeclared(found, CdcFlow(topic), taken)
        return found

    @cached_property
    def _declared(self) -> frozenset[str]:
        return frozenset(self.settings)

    @cached_property
    def _known(self) -> Collection[str]:
        return self.find_known()

    def _illegal(self, topic: str) -> HeldTopic | None:
        if topic == NO_TOPIC:
            return HeldTopic(topic, RejectReason.UNKNOWN_TOPIC)
        if is_legal_topic(topic) or topic in self._declared or (topic in self._known and CdcFlow(topic).has_place):
            return None
        return HeldTopic(topic, RejectReason.ILLEGAL_TOPIC_NAME, f"Kafka takes no such name; if it is one here, {_DECLARE}")

    def _take(self, found: SortedTopics, flow: CdcFlow) -> None:
        if flow.has_place:
            found.flows[flow.topic] = flow
        elif flow.topic in self._declared:
            raise ConfigurationError(
                f"Flow {printable(flow.topic)}: its name is no place below the lake that a table may have.",
                next_step="Give the flow a table: in the flows file.",
            )
        else:
            found.held[flow.topic] = HeldTopic(flow.topic, RejectReason.ILLEGAL_TOPIC_NAME, f"no folder may have the name; {_DECLARE}")

    def _sort_undeclared(self, found: SortedTopics, flow: CdcFlow, taken: dict[str, str]) -> None:
        topic, place = flow.topic, self._place(flow)
        other = taken.get(place)
        if self.on_new_topic is not OnNewTopic.CREATE and topic not in self._known:
            if self.on_new_topic is OnNewTopic.QUARANTINE:
                found.held[topic] = HeldTopic(topic, RejectReason.UNDECLARED_TOPIC, "no flow and no route declares it")
                return
            found.refused.append(topic)
        elif other is not None and topic not in self._known:
            detail = f"the folder of its name is, holds or lies in that of flow {printable(other)}; {_DECLARE}"
            found.held[topic] = HeldTopic(topic, RejectReason.ILLEGAL_TOPIC_NAME, detail)
            return
        self._take(found, flow)
        if topic in found.flows:
            taken.setdefault(place, topic)

    def _places(self, flows: Iterable[CdcFlow]) -> dict[str, str]:
        """Return the paths of tables and of the folders above them, each with one of their topics."""
        found: dict[str, str] = {}
        for flow in flows:
            for place in accumulate(self._place(flow).split("/"), lambda above, name: f"{above}/{name}"):
                found.setdefault(place, flow.topic)
        return found

    def _place(self, flow: CdcFlow) -> str:
        place = flow.table_path(self.lake).rstrip("/")
        return place.casefold() if self.folds_case else place
