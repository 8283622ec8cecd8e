"""Archived schemas: types for events without a schema, from the schemas inside other events of the topic (docs/reference/types.md).

    <lake>/_cdc/archives/<id>/schemas/<flow>.json   the fields found, and the last survey that was read   derived from the surveys

Schemas archived on a single day provide the types for all events. The surveys hold them; each is read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from airflow_cdc.model.archive.survey import Survey
from airflow_cdc.model.state.archived_schema import ArchivedSchema
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.decode.source_columns import image_fields, is_schema
from airflow_cdc.pipeline.decode.types.connect_types import is_field


@dataclass(frozen=True)
class ArchivedFields:
    """The definitions of a topic's columns in the schemas inside its events."""

    by_column: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    """Connect fields, each definition once, in the order of the surveys."""
    connector: str = ""


@dataclass
class ArchivedSchemas:
    """The archived schemas of one archive. A topic's are read on first use, once per run."""

    state: ArchiveState
    ledger: Ledger
    keeps: bool = True
    """Whether the result is recorded for the next run; a read-only command writes nothing."""
    _found: dict[str, ArchivedFields] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def of(self, topic: str) -> ArchivedFields:
        """Return the fields of a topic's columns from the archive's schemas; none if no event carries a schema."""
        with self._lock:
            if topic not in self._found:
                self._found[topic] = self._look(topic)
        return self._found[topic]

    def _look(self, topic: str) -> ArchivedFields:
        known = self.state.archived_schema(topic) or ArchivedSchema(topic)
        first, last = max(known.through + 1, self.ledger.topics.get(topic, 1)), self.ledger.latest.get(topic, 0)
        if first <= last:
            for survey in self.state.surveys(first, last):
                known = _with_survey(known, survey)
            known = replace(known, through=last)
            if self.keeps:
                self.state.write_archived_schema(known)
        return ArchivedFields(known.columns, known.connector)


def _with_survey(known: ArchivedSchema, survey: Survey) -> ArchivedSchema:
    connector, columns = known.connector, dict(known.columns)
    shapes = {(shape.value_shape, shape.connector) for shape in survey.shapes if shape.topic == known.topic}
    for text, named in sorted(shapes, key=str):
        if text is None or not is_schema(text):
            continue
        connector = named or connector
        for each in _definitions(image_fields(text)):
            definitions = columns.get(each["field"], ())
            if each not in definitions:
                columns[each["field"]] = (*definitions, each)
    return replace(known, connector=connector, columns=columns)


def _definitions(fields: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """Return the members of the fields that define the values' encoding, without defaults, versions and documentation."""
    for each in fields:
        if is_field(each):
            yield {name: each[name] for name in ("field", "type", "name", "parameters", "items") if each.get(name) is not None}
