"""The registry of known connectors. A new one is a file beside this one, and its entry in :data:`_ENTRIES`."""

from __future__ import annotations

from airflow_cdc.model.connectors.connector import Connector, Flattened
from airflow_cdc.model.connectors.db2 import DB2
from airflow_cdc.model.connectors.huawei_cdl import HUAWEI_CDL
from airflow_cdc.model.connectors.mongodb import MONGODB
from airflow_cdc.model.connectors.mysql import MYSQL
from airflow_cdc.model.connectors.oracle import ORACLE
from airflow_cdc.model.connectors.postgresql import POSTGRESQL
from airflow_cdc.model.connectors.sqlserver import SQLSERVER
from airflow_cdc.model.errors import UnsupportedConnectorError

_ENTRIES = (POSTGRESQL, MYSQL, SQLSERVER, ORACLE, DB2, MONGODB, HUAWEI_CDL)
CONNECTORS = {name: entry for entry in _ENTRIES for name in entry.names}
"""By their names in ``source.connector``."""
ANY = SQLSERVER
"""For a microbatch without events: its control records are decoded alike by every connector's entry."""


def entries() -> tuple[Connector, ...]:
    """Return the entries of all connectors, each once."""
    return tuple(dict.fromkeys(CONNECTORS.values()))


def connector_of(connectors: set[str], flow: str) -> Connector:
    """Return the connector of a topic's events; records of unknown connectors beside known ones go to the quarantine.

    :raises UnsupportedConnectorError: for unknown connectors only, or for several in one topic.
    """
    known = connectors & CONNECTORS.keys()
    # A record that lost the marks of its connector's own values shows only the source's connector.
    known = {name for name in known if CONNECTORS[name].values.recognised} or known
    if len(known) == 1:
        return CONNECTORS[known.pop()]
    raise UnsupportedConnectorError(
        f"Flow {flow}: the events come from {sorted(connectors) or 'no connector that they name'}; known are {sorted(CONNECTORS)}.",
        next_step="Leave the topic out with --table, or ask for the dialect.",
    )


def flattened_fields() -> tuple[str, ...]:
    """Return the members of ``source`` by which flattened records and CloudEvents are ordered."""
    return tuple(dict.fromkeys(name for entry in entries() if entry.flattened for name in entry.position.fields))


def by_flattened_fields() -> list[tuple[Connector, Flattened]]:
    """Return the possible connectors of a flattened record, in the order of testing: the most specific first."""
    found = [(entry, entry.flattened) for entry in entries() if entry.flattened]
    return sorted(found, key=lambda pair: (not pair[1].pattern, pair[1].may_be_anothers))


def own_images() -> tuple[str, ...]:
    """Return the members that hold a row in values other than Debezium's envelopes."""
    return tuple(entry.values.image for entry in entries() if entry.values.image)


def with_log_of_database() -> tuple[str, ...]:
    """Return the names of the connectors that may capture several databases, each with a log of its own."""
    return tuple(name for name, entry in CONNECTORS.items() if "db" in entry.position.log)


def without_database() -> tuple[str, ...]:
    """Return the names of the connectors whose topics are named without the database."""
    return tuple(name for name, entry in CONNECTORS.items() if "db" not in entry.topic)
