"""Columns of a source database's tables, read from its catalogue through the SQL hook of the connection's provider."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.storage import existing_connection
from airflow_cdc.model.catalogue.columns import text
from airflow_cdc.model.catalogue.modes import ConnectorSettings
from airflow_cdc.model.catalogue.queries import in_style
from airflow_cdc.model.catalogue.row_hashes import Dialect
from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.errors import ConfigurationError, SourceFailedError, first_line
from airflow_cdc.model.flow.source_schema import SourceSchema
from airflow_cdc.model.pull.settings import catalogues, checked_properties, properties_of, settings_of
from airflow_cdc.model.pull.source_column import source_column
from airflow_cdc.model.pull.tables import Table, tables_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

_OF_ANY_DATABASE = {"jdbc": "apache-airflow-providers-jdbc", "odbc": "apache-airflow-providers-odbc"}
"""Packages of the connection types for any database; the driver shows which one. Their drivers take ``?``."""
_SECRET = re.compile(r"pass|pwd|secret|token|key", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"((?:password|pwd)\s*=\s*)[^;&\s]+", re.IGNORECASE)


def pull_schemas(
    conn_id: str,
    flows: Collection[str],
    properties: Mapping[str, str] | None = None,
    *,
    tables: Mapping[str, str] | None = None,
    connector: str | None = None,
) -> tuple[SourceSchema, ...]:
    """Return the schemas of flows' tables from a database's catalogue and the connector's settings, in the flows' order.

    :param conn_id: Airflow connection of the database.
    :param flows: names of flows, which are names of topics.
    :param properties: the connector's settings that differ from its defaults (``decimal.handling.mode``).
    :param tables: by flow, its table ``schema.table`` where the topic has another name.
    :param connector: ``source.connector`` of the events; none: derived from the connection.
    :raises ConfigurationError: when the connection, its provider, a setting or a flow's table is missing or wrong; no schema is returned
        then, of other flows neither.
    :raises SourceFailedError: when the database does not answer, or refuses.
    """
    # Before the database is asked.
    properties = checked_properties(properties or {})
    source = SourceCatalogue(conn_id, connector)
    settings = settings_of(source.connector, properties)
    found = tables_of(source.connector, flows, source.tables(), tables or {})
    return tuple(source.schema(flow, table, settings) for flow, table in found.items())


def source_of(archive_conn_id: str | None = None) -> str:
    """Return the source connection that an archive's connection names.

    :param archive_conn_id: connection of type ``cdc_archive``; none: the default one.
    :raises ConfigurationError: when there is no such archive connection, or it names no source.
    """
    given, archive_conn_id = "Give the source's connection as --source-conn-id", archive_conn_id or CdcArchiveHook.default_conn_name
    try:
        found = CdcArchiveHook(archive_conn_id).source_conn_id
    except ConfigurationError as error:
        raise ConfigurationError(
            f"Which database to ask is not known. {error.message}", next_step=f"{given}, or the archive's as --archive-conn-id."
        ) from error
    if not found:
        raise ConfigurationError(
            f"Which database to ask is not known: connection {archive_conn_id} names no source.",
            next_step=f"{given}, or set source_conn_id in connection {archive_conn_id}.",
        )
    return found


class SourceCatalogue:
    """A source database's catalogue.

    :param conn_id: Airflow connection of the database.
    :param connector: ``source.connector`` of its events; none: derived from the connection.
    """

    def __init__(self, conn_id: str, connector: str | None = None) -> None:
        self._conn_id = conn_id
        self._given = connector

    @cached_property
    def connector(self) -> str:
        """The connector whose rules determine how the columns are encoded.

        :raises ConfigurationError: when the connection is of another kind of database, or does not show its kind.
        :raises SourceFailedError: as :meth:`tables`.
        """
        kind = self._connection.conn_type or ""
        allowed = _connectors(kind)
        if not allowed or self._given not in (None, *allowed):
            types = (*dict.fromkeys(catalogue.connection_type for catalogue in catalogues().values()), *_OF_ANY_DATABASE)
            expected = self._given or f"one of {', '.join(types)}"
            raise ConfigurationError(
                f"Connection {self._conn_id} is of type {kind!r}, expected a database's: {expected}.",
                next_step="Name the connection of the source database.",
            )
        if self._given:
            return self._given
        if kind in _OF_ANY_DATABASE:
            return self._by_driver(kind)
        asked = catalogues()[allowed[0]].name_query
        product = str(self._records(asked)[0][0]).lower() if asked else ""
        return next((name for name in allowed[1:] if name in product), allowed[0])

    def tables(self) -> list[Table]:
        """Return the tables that the connection's user can see.

        :raises SourceFailedError: when the database does not answer, or refuses.
        :raises ConfigurationError: when the connection's provider or driver is not installed.
        """
        return [Table(*(text(part) for part in row)) for row in self._records(catalogues()[self.connector].queries.tables)]

    def schema(self, flow: str, table: Table, settings: ConnectorSettings) -> SourceSchema:
        """Return the columns and the key of a flow's table.

        :raises SourceFailedError: as :meth:`tables`.
        """
        asked = catalogues()[self.connector].queries
        columns = [source_column(self.connector, row, settings) for row in self._records(asked.columns, table.schema, table.name)]
        keys = [text(row[0]) for row in self._records(asked.keys, table.schema, table.name)]
        origin = f"catalogue of {self.connector}, connection {self._conn_id}, table {table}"
        return SourceSchema(flow, self.connector, tuple(columns), tuple(keys), origin, properties_of(settings, self.connector))

    @property
    def dialect(self) -> Dialect | None:
        """How the database spells and hashes its rows; None where its tables are not compared by hashes."""
        return catalogues()[self.connector].dialect

    def ask(self, statement: str) -> Sequence[Sequence[Any]]:
        """Return the rows of a statement without parameters.

        :raises SourceFailedError, ConfigurationError: as :meth:`tables`.
        """
        return self._rows(statement, None, self.dialect.session if self.dialect else ())

    def relation(self, table: Table) -> str:
        """Return the SQL by which a table's own rows are read.

        :raises SourceFailedError, ConfigurationError: as :meth:`tables`.
        """
        dialect = self.dialect
        assert dialect is not None
        before = self._records(dialect.before_name, table.schema, table.name) if dialect.before_name else [[""]]
        return text(before[0][0] if before else "") + ".".join(map(dialect.quote, (table.schema, table.name)))

    @cached_property
    def _connection(self) -> Connection:
        return existing_connection(self._conn_id, "a connection of the source database, such as one of type postgres")

    @cached_property
    def _hook(self) -> Any:
        try:
            hook = self._connection.get_hook()
        except Exception as problem:  # noqa: BLE001 - for a connection type that no provider knows, Airflow raises its root class.
            raise self._lacking(problem) from None
        hook.log_sql = False
        return hook

    @cached_property
    def _placeholder(self) -> str:
        kind = self._connection.conn_type or ""
        known = "?" if kind in _OF_ANY_DATABASE else next((catalogues()[name].placeholder for name in _connectors(kind)), "")
        return known or str(self._hook.placeholder)

    def _by_driver(self, kind: str) -> str:
        driver = (self._connection.host if kind == "jdbc" else self._hook.driver) or ""
        found = next((connector for word, connector in _words() if word in driver.lower()), None)
        if found is None:
            raise ConfigurationError(
                f"Connection {self._conn_id} of type {kind} names no database that is known.",
                next_step=f"Give it as --connector: {', '.join(catalogues())}.",
            )
        return found

    def _records(self, sql: str, *parameters: str) -> Sequence[Sequence[Any]]:
        return self._rows(in_style(sql, self._placeholder), parameters or None)

    def _rows(self, sql: str, parameters: Sequence[str] | None, session: Sequence[str] = ()) -> Sequence[Sequence[Any]]:
        hook = self._hook
        try:
            if session:
                return list(hook.run([*session, sql], handler=_fetch, parameters=parameters)[-1])
            return list(hook.get_records(sql, parameters))
        except Exception as problem:  # noqa: BLE001 - each driver has exceptions of its own.
            if isinstance(problem, ImportError) or isinstance(problem.__cause__, ImportError):
                raise self._lacking(problem) from None
            raise SourceFailedError(
                f"Connection {self._conn_id}: the database does not answer or refuses: {_without(_secrets(self._connection), problem)}",
                next_step="Check the connection's host, user and password, and that its user may read the catalogue; then run again.",
            ) from None

    def _lacking(self, problem: Exception) -> ConfigurationError:
        kind = self._connection.conn_type or ""
        return ConfigurationError(
            f"Connection {self._conn_id} of type {kind} cannot be used: {_without(_secrets(self._connection), problem)}",
            next_step=f"Install {_provider(kind)} with its driver.",
        )


def _fetch(cursor: Any) -> list[Any]:
    return cursor.fetchall() if cursor.description is not None else []


def _connectors(kind: str) -> tuple[str, ...]:
    """Return the connectors of the databases that a connection of this type may lead to."""
    return tuple(name for name, catalogue in catalogues().items() if kind in (catalogue.connection_type, *_OF_ANY_DATABASE))


def _provider(kind: str) -> str:
    named = {catalogue.connection_type: catalogue.provider for catalogue in catalogues().values()} | _OF_ANY_DATABASE
    return named.get(kind, "the provider of that type")


def _words() -> Iterable[tuple[str, str]]:
    """Yield the words by which a JDBC URL or an ODBC driver's name shows a database, with its connector."""
    for entry in dict.fromkeys(CONNECTORS[name] for name in catalogues()):
        # A database with a second name has that name in its drivers too.
        yield from ((name, name) for name in reversed(entry.names))
        yield from ((word, entry.names[0]) for word in (entry.catalogue.words if entry.catalogue else ()))


def _secrets(connection: Connection) -> Iterable[str]:
    """Return the connection's secrets, plain and URL-encoded."""
    in_extra = [str(value) for name, value in connection.extra_dejson.items() if _SECRET.search(name)]
    plain = [secret for secret in (connection.password, *in_extra) if secret]
    return (*plain, *(quote(secret, safe="") for secret in plain))


def _without(secrets: Iterable[str], problem: Exception) -> str:
    text = first_line(problem)
    for secret in secrets:
        text = text.replace(secret, "…")
    text = _SECRET_IN_URL.sub(r"\1…", text)
    return text if text.endswith(".") else f"{text}."
