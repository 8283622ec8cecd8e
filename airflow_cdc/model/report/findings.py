"""Findings: what a person should hear of flows, as a title, a text and an HTML text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from html import escape
from typing import Any

_MOST_NAMED = 10


class FindingKind(str, Enum):
    """What kind of finding it is, the most urgent first."""

    STOPPED = "stopped"
    BEHIND = "behind"
    DIFFERENT = "different from the source"
    REJECTED = "rejected"
    NOT_FOUND = "rows not found"
    UNRESOLVED = "values unresolved"
    MISSING = "offsets missing"
    UNCONFIRMED = "unconfirmed"
    SCHEMA = "schema changed"


_HEADS = {
    FindingKind.STOPPED: "Stopped",
    FindingKind.BEHIND: "Behind",
    FindingKind.DIFFERENT: "Rows that differ from the source's",
    FindingKind.REJECTED: "Rejected records, now in the quarantine",
    FindingKind.NOT_FOUND: "Rows that an update or a delete should have found",
    FindingKind.UNRESOLVED: "Rows with NULL for a value that neither an event nor a row carries",
    FindingKind.MISSING: "Kafka offsets that are missing from the archive",
    FindingKind.UNCONFIRMED: "Rows that the newest snapshot did not find, and that were kept",
    FindingKind.SCHEMA: "Columns that changed",
}


@dataclass(frozen=True)
class Finding:
    """One finding about one flow."""

    kind: FindingKind
    flow: str | None
    """None where it concerns the whole run."""
    text: str
    """One line, without the flow's name."""
    count: int = 1
    """Records, rows, offsets or columns; 1 for a flow that stopped or is behind."""

    def line(self) -> str:
        """Return the finding as a line."""
        return f"{self.flow}: {self.text}" if self.flow else self.text

    def sentence(self) -> str:
        """Return the finding with its kind, without the flow's name."""
        return f"{_HEADS[self.kind]}: {self.text}"


def failures(report: Any) -> Iterator[Finding]:
    """Yield the flows that a report names as failed, and the run's own error.

    :param report: of any job; each of its flows has ``flow`` and ``error``.
    """
    if report.error:
        yield Finding(FindingKind.STOPPED, None, f"The run stopped: {cause_text(report.error)}")
    yield from (Finding(FindingKind.STOPPED, flow.flow, cause_text(flow.error)) for flow in report.flows if flow.error)


def cause_text(error: Mapping[str, Any]) -> str:
    """Return an error of a report as a line, with its next step."""
    text = f"{error.get('type', 'Error')}: {error.get('message', 'no cause is known')}"
    return f"{text} Next step: {error['next_step']}" if error.get("next_step") else text


@dataclass(frozen=True)
class Summary:
    """Findings in the forms that notifiers take."""

    where: str
    """The Dag, task and run, or what else the reader needs to find the place."""
    findings: tuple[Finding, ...]

    @property
    def title(self) -> str:
        """The counts on one line, such as ``2 flows stopped, 17 records rejected``."""
        by_kind = self._by_kind()
        words = {
            FindingKind.STOPPED: ("flow stopped", "flows stopped"),
            FindingKind.BEHIND: ("flow behind", "flows behind"),
            FindingKind.DIFFERENT: ("row different from the source", "rows different from the source"),
            FindingKind.REJECTED: ("record rejected", "records rejected"),
            FindingKind.NOT_FOUND: ("row not found", "rows not found"),
            FindingKind.UNRESOLVED: ("row with an unknown value", "rows with unknown values"),
            FindingKind.MISSING: ("offset missing", "offsets missing"),
            FindingKind.UNCONFIRMED: ("row unconfirmed", "rows unconfirmed"),
            FindingKind.SCHEMA: ("column changed", "columns changed"),
        }
        counts = {kind: sum(finding.count for finding in found) for kind, found in by_kind.items()}
        return ", ".join(f"{count:,} {words[kind][count != 1]}" for kind, count in counts.items())

    @property
    def text(self) -> str:
        """Plain text: the place, then each kind with its flows."""
        return "\n".join([self.where, *(line for head, lines in self._parts() for line in ("", head, *(f"• {each}" for each in lines)))])

    @property
    def html(self) -> str:
        """The same as HTML."""
        parts = (
            f"<h4>{escape(head)}</h4><ul>{''.join(f'<li>{escape(each)}</li>' for each in lines)}</ul>" for head, lines in self._parts()
        )
        return f"<p>{escape(self.where)}</p>{''.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        """Return the three forms, and each finding as plain JSON values."""
        found = [{"kind": each.kind.value, "flow": each.flow, "text": each.text, "count": each.count} for each in self.findings]
        return {"title": self.title, "text": self.text, "html": self.html, "findings": found}

    def _by_kind(self) -> dict[FindingKind, list[Finding]]:
        found = {kind: [finding for finding in self.findings if finding.kind is kind] for kind in FindingKind}
        return {kind: findings for kind, findings in found.items() if findings}

    def _parts(self) -> Iterator[tuple[str, list[str]]]:
        for kind, findings in self._by_kind().items():
            more = [f"… and {len(findings) - _MOST_NAMED} more"] if len(findings) > _MOST_NAMED else []
            yield _HEADS[kind], [*(finding.line() for finding in findings[:_MOST_NAMED]), *more]


def summary_of(where: str, findings: Iterable[Finding]) -> Summary:
    """Return the summary of findings, the most urgent kind first."""
    order = list(FindingKind)
    return Summary(where, tuple(sorted(findings, key=lambda finding: (order.index(finding.kind), finding.flow or ""))))
