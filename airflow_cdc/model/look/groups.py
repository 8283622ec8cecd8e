"""Groups: pending flows distributed over a few Spark applications, by bytes."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_cdc.model.archive.transactions import ends_transactions
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import DEFAULT_MICROBATCH_BYTES
from airflow_cdc.model.look.pending import PendingFiles

DEFAULT_GROUP_BYTES = DEFAULT_MICROBATCH_BYTES
DEFAULT_MAX_GROUPS = 4


@dataclass(frozen=True)
class FlowGroup:
    """Flows for one run; no flow is in two groups of one plan."""

    tables: tuple[str, ...]
    """Globs that match these flows, for ``CdcMergeOperator``; most are names."""
    bytes: int
    """Pending bytes of these flows, compressed or not as in the archive."""


def plan_groups(
    pending: PendingFiles,
    *,
    tables: Iterable[str] = (),
    group_bytes: int = DEFAULT_GROUP_BYTES,
    max_groups: int = DEFAULT_MAX_GROUPS,
) -> tuple[FlowGroup, ...]:
    """Return the pending flows in as few groups of about ``group_bytes`` as needed, all of similar size.

    A flow with nothing pending is in no group. An unsurveyed file that no sink has named may hold any topic, known or not. For such files
    one group matches everything that is in no other group: ``*``, and ``!`` with the others' names.

    :param tables: the globs that ``pending`` was queried with.
    :param group_bytes: target size; a larger flow makes a larger group.
    :return: largest first; none where nothing is pending.
    :raises ConfigurationError: when a bound is below 1.
    """
    for name, bound in (("group_bytes", group_bytes), ("max_groups", max_groups)):
        if bound < 1:
            raise ConfigurationError(f"{name} is {bound}, expected 1 or more.", next_step="Correct the task that plans the groups.")
    sizes = Counter(pending.planned_bytes or {})
    # None of their files is applied, but the failure must show: their group fails and names the files.
    sizes.update(dict.fromkeys(pending.stopped, 0))
    rest = None
    for file in pending.unsurveyed:
        if file.start_offset is None or ends_transactions(file.topic):
            # The files that an END releases are not known by name either.
            rest = (rest or 0) + file.size
        else:
            sizes[file.topic] += file.size
    whole = (rest or 0) + sum(sizes.values())
    count = min(max_groups, max(1, -(-whole // group_bytes)))
    if rest is None:
        return _shared_out(sizes, count)
    globs = tuple(tables)
    groups = _shared_out(sizes, count - 1)
    others = tuple(sorted(f"!{name}" for group in groups for name in group.tables))
    left = FlowGroup((*(globs or ("*",)), *others), whole - sum(group.bytes for group in groups))
    return tuple(sorted((*groups, left), key=lambda group: -group.bytes))


def _shared_out(sizes: Counter[str], count: int) -> tuple[FlowGroup, ...]:
    """Put each flow, largest first, into the group with the fewest bytes."""
    groups: list[tuple[int, int, int, list[str]]] = [(0, 0, number, []) for number in range(min(count, len(sizes)))]
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)) if groups else ():
        size, length, number, names = heapq.heappop(groups)
        # Also by length, so that flows without bytes leave no group empty.
        heapq.heappush(groups, (size + sizes[name], length + 1, number, [*names, name]))
    shared = [FlowGroup(as_globs(names), size) for size, _, _, names in groups]
    return tuple(sorted(shared, key=lambda group: (-group.bytes, group.tables)))


def as_globs(names: Sequence[str]) -> tuple[str, ...]:
    """Return a glob for each of these flows' names.

    Kafka topics stand for themselves. A file's name may hold any character: those with a meaning in globs or lists of globs are escaped, or
    matched by ``?``.
    """
    return tuple(re.sub(r"^!|[,\s]", "?", re.sub(r"[*?\[]", r"[\g<0>]", name)) for name in names)
