"""Select flows of a lake by name."""

from __future__ import annotations

from collections.abc import Container, Iterable

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.state.lake import ArchiveState, FlowState, flows_in
from airflow_cdc.pipeline.spark.storage import file_system


def select_flows(state: ArchiveState, lake: str, globs: Iterable[str], declared: Container[str] = ()) -> list[str]:
    """Return the flows of an archive that a lake knows and whose names match, ordered by name.

    :param globs: each must match a flow, because a misspelled name would otherwise look like a successful repair. Empty: all.
    :param declared: topics that are flows even if the last run held them.
    :raises ConfigurationError: when one matches none.
    """
    known, wanted = state.flows(state.ledger()), list(globs)
    known = sorted([*known, *(topic for topic in state.held_topics() if topic and topic in declared)])
    idle = [glob for glob in wanted if not any(matches_any(name, [glob]) for name in known)]
    if idle:
        raise ConfigurationError(
            f"Lake {lake} knows no flow {', '.join(idle)} of archive {state.archive}; its flows are {known}.",
            next_step="Correct the names or the connections; what was never applied cannot be repaired.",
        )
    return [name for name in known if matches_any(name, wanted)]


def known_flow(lake: str, flow: str) -> FlowState:
    """Return the state of a flow that a lake knows, from any archive.

    :param lake: URI of the lake's root.
    :raises ConfigurationError: for an unknown flow.
    """
    fs, root = file_system(lake)
    if flow not in (known := flows_in(fs, root)):
        raise ConfigurationError(f"Lake {lake} knows no flow {flow}; its flows are {known}.", next_step="Correct the flow's name.")
    return FlowState(fs, root, flow)


def check_known(state: ArchiveState, lake: str, flow: str) -> None:
    """Refuse the name of an unknown flow.

    :raises ConfigurationError: for such a name.
    """
    ledger = state.ledger()
    if flow not in ledger.topics:
        raise ConfigurationError(
            f"Lake {lake} knows no flow {flow} of archive {state.archive}; its flows are {ledger.tables()}.",
            next_step="Correct the flow's name or the roots; a flow is reprocessed after it was applied.",
        )
