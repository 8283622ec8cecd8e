"""What became of each event of one key, and why.

Outcomes are recorded nowhere by event. They are worked out here by the rules of reconcile, in which the last position wins, from the events
that were read. Where older files were not read, an outcome is marked as not sure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.position.position import Position
from airflow_cdc.pipeline.look.positions_of import KeyEvent

_ROW_OPERATIONS = ("c", "u", "d", "r")


def decide(events: Iterable[KeyEvent], mode: TableMode, *, is_whole: bool) -> list[KeyEvent]:
    """Return the events in the order in which they are applied, with what became of each.

    :param is_whole: whether all of the key's events are among them.
    """
    groups: dict[int, list[KeyEvent]] = {}
    waiting = []
    for each in events:
        number = each.event.microbatch
        if number is None:
            waiting.append(replace(each, outcome="waiting", reason="No microbatch has applied its file yet."))
        else:
            groups.setdefault(number, []).append(each)
    known = _Known(None, "", 0, is_whole)
    decided: list[KeyEvent] = []
    for number in sorted(groups):
        found = _decide_group(sorted(groups[number], key=_place), known, mode)
        decided += found
        for each in found:
            if each.outcome in ("merged", "appended") and each.position and (known.position is None or each.position > known.position):
                known = _Known(each.position, each.spelled or str(each.position), number, is_whole)
    return [*decided, *sorted(waiting, key=_place)]


def _place(each: KeyEvent) -> tuple[bool, Position, int, str, int]:
    nowhere = Position(0, 0, 0)
    return each.position is None, each.position or nowhere, each.event.offset or 0, each.event.file, each.event.line


@dataclass(frozen=True)
class _Known:
    position: Position | None
    spelled: str
    microbatch: int
    is_whole: bool


def _decide_group(group: Sequence[KeyEvent], known: _Known, mode: TableMode) -> list[KeyEvent]:
    number = group[0].event.microbatch
    rows = [each for each in group if each.event.op in _ROW_OPERATIONS]
    last = rows[-1] if rows else None
    decided = []
    for place, each in enumerate(group):
        # Of copies the one archived last counts as the event.
        again = any(other.position == each.position for other in group[place + 1 :] if other in rows)
        decided.append(_decided(each, last, known, is_copy=each.position is not None and again))
    if mode not in (TableMode.CHANGE_LOG, TableMode.VERSIONS):
        return decided
    kept = "It is a row of the table" if mode is TableMode.CHANGE_LOG else "It is part of the row's versions"
    appended = f"{kept}, written by microbatch {number}."
    return [replace(each, outcome="appended", reason=appended) if each.outcome in ("merged", "superseded") else each for each in decided]


def _decided(each: KeyEvent, last: KeyEvent | None, known: _Known, *, is_copy: bool) -> KeyEvent:
    if each.event.op is None:
        return replace(each, outcome="tombstone", reason="Kafka's null value behind a delete; it changes nothing.")
    if last is None or each.event.op not in _ROW_OPERATIONS:
        return replace(each, outcome="unknown", reason="It is no change of a row.")
    if each.position is None:
        return replace(each, outcome="unknown", reason="Its position is read by Spark alone.", is_sure=False)
    if is_copy:
        return replace(each, outcome="redelivered", reason="The same event was archived again behind it: same key, same position.")
    if each is not last:
        later = f"A later event of the same key follows in microbatch {each.event.microbatch}, at {last.spelled or last.position}."
        return replace(each, outcome="superseded", reason=later)
    return _against_known(each, each.position, known)


def _against_known(each: KeyEvent, position: Position, known: _Known) -> KeyEvent:
    """Decide the last event of a microbatch by what the table held of the key before."""
    if known.position is not None and position <= known.position:
        held = f"Microbatch {known.microbatch} had already applied {known.spelled} of this key, which is not older."
        return replace(each, outcome="stale", reason=held)
    what = "It removed the row" if each.event.op == "d" else "It determined the row"
    is_sure = known.is_whole or known.position is not None
    doubt = "" if is_sure else " Older files were not read; a later event may stand there."
    return replace(each, outcome="merged", reason=f"{what} in microbatch {each.event.microbatch}.{doubt}", is_sure=is_sure)
