"""Ledger: the surveyed files of an archive, small enough to be read at every look."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_cdc.model.archive.survey import Survey, is_control_topic
from airflow_cdc.model.archive.topics import NO_TOPIC
from airflow_cdc.model.files import name_digest, short_hash
from airflow_cdc.model.plain_json import JsonArray, JsonObject
from airflow_cdc.model.state.microbatch import PlanPosition


@dataclass(frozen=True)
class FolderSeen(JsonArray):
    """The surveyed names of one folder, as numbers instead of a list."""

    through: str
    """The greatest surveyed name."""
    count: int
    digest: int
    """Sum of the names' digests modulo 2^64: with ``count`` it shows whether a late name sorts below ``through``."""
    size: int
    """Bytes of the files, which show whether one of them changed."""


@dataclass(frozen=True)
class Ledger(JsonObject, required=("surveyed_through", "folders", "topics", "kinds", "latest", "void", "digests")):
    """The surveyed files of an archive, and the survey in which each topic was first seen."""

    surveyed_through: int = 0
    folders: dict[str, FolderSeen] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    """By topic: number of the first survey that saw it."""
    kinds: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By topic: operation codes and record kinds seen so far."""
    latest: dict[str, int] = field(default_factory=dict)
    """By topic: number of the last survey that saw it; a quiet flow reads no later one."""
    void: dict[int, frozenset[str]] = field(default_factory=dict)
    """By survey number: paths of its files that have changed since and that a later survey holds."""
    digests: tuple[str, ...] = ()
    """A hash of each survey's files, in the surveys' order."""

    def tables(self) -> list[str]:
        """Return the topics that carry rows of a table."""
        return sorted(topic for topic in self.topics if topic != NO_TOPIC and not is_control_topic(topic, set(self.kinds[topic])))

    def control_topics(self) -> list[str]:
        """Return the topics that carry no rows: transactions, heartbeats, schema changes, signals."""
        return sorted(set(self.topics) - set(self.tables()) - {NO_TOPIC})

    def with_survey(self, survey: Survey) -> Ledger:
        """Return the ledger after one more survey."""
        folders = dict(self.folders)
        before = {item.path: item for item in survey.replaces}
        for file in survey.files:
            folder, name = folder_and_name(file.path)
            seen = folders.get(folder, FolderSeen("", 0, 0, 0))
            if file.path in before:
                folders[folder] = replace(seen, size=seen.size + file.size - before[file.path].size)
                continue
            digest = (seen.digest + name_digest(name)) % 2**64
            folders[folder] = FolderSeen(max(seen.through, name), seen.count + 1, digest, seen.size + file.size)
        topics = {**dict.fromkeys(survey.topics(), survey.number), **self.topics}
        kinds = dict(self.kinds)
        for shape in survey.shapes:
            kinds[shape.topic] = tuple(sorted({*kinds.get(shape.topic, ()), shape.kind}))
        latest = {**self.latest, **dict.fromkeys(survey.topics(), survey.number)}
        void = dict(self.void)
        for item in survey.replaces:
            void[item.survey] = void.get(item.survey, frozenset()) | {item.path}
        hashed = short_hash(json.dumps([file.path for file in survey.files]))
        return Ledger(survey.number, folders, topics, kinds, latest, void, (*self.digests, hashed))

    def may_know(self, path: str) -> bool:
        """Return whether a file may be surveyed, judged by its name alone."""
        folder, name = folder_and_name(path)
        return folder in self.folders and name <= self.folders[folder].through

    def digest_of(self, planned: PlanPosition) -> str | None:
        """Return the hash of the last survey that a plan reaches into; None where there is no such survey."""
        number = planned.survey if planned.files else planned.survey - 1
        return self.digests[number - 1] if 0 < number <= len(self.digests) else None


def ledger_from_json(document: Mapping[str, Any]) -> Ledger:
    """Return the ledger of a document; an empty one for a document of a version without digests, which is then rebuilt like a lost one."""
    return Ledger.from_json(document) if "digests" in document else Ledger()


def folder_and_name(path: str) -> tuple[str, str]:
    """Return a path's folder and file name."""
    folder, _, name = path.rpartition("/")
    return folder, name
