"""The connector's settings by which the values of a column are spelled; each has the default of Debezium's reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_cdc.model.errors import ConfigurationError

CONNECTORS = ("postgresql", "mysql", "mariadb", "sqlserver", "oracle", "db2")
"""Connectors (``source.connector``) whose databases' catalogues can be read."""

_MYSQL = frozenset({"mysql", "mariadb"})


@dataclass(frozen=True)
class _Setting:
    values: tuple[str, ...]
    """The default first."""
    connectors: frozenset[str] = frozenset(CONNECTORS)


_SETTINGS: Mapping[str, _Setting] = {
    "decimal.handling.mode": _Setting(("precise", "double", "string")),
    "time.precision.mode": _Setting(("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds")),
    # The Db2 connector writes bytes, whatever it is told.
    "binary.handling.mode": _Setting(("bytes", "base64", "base64-url-safe", "hex"), frozenset(CONNECTORS) - {"db2"}),
    "interval.handling.mode": _Setting(("numeric", "string"), frozenset({"postgresql", "oracle"})),
    "hstore.handling.mode": _Setting(("json", "map"), frozenset({"postgresql"})),
    "bigint.unsigned.handling.mode": _Setting(("long", "precise"), _MYSQL),
}


@dataclass(frozen=True)
class ConnectorSettings:
    """How a connector was told to spell values; an attribute for each property."""

    decimal: str
    time: str
    binary: str
    interval: str
    hstore: str
    bigint_unsigned: str

    @classmethod
    def of(cls, connector: str, properties: Mapping[str, str] | None = None) -> ConnectorSettings:
        """Return the settings of a connector.

        :param connector: one of :data:`CONNECTORS`.
        :param properties: those that were given, by their names in the connector's configuration; the others have their defaults.
        :raises ConfigurationError: when a property or its value is not known, or the connector does not have it.
        """
        given = checked_properties(properties or {})
        for name, value in given.items():
            _check(connector, name, value)
        return cls(*(given.get(name, default_of(connector, name)) for name in _SETTINGS))

    def properties(self, connector: str) -> dict[str, str]:
        """Return the settings that a connector has, by their names in its configuration."""
        values = (self.decimal, self.time, self.binary, self.interval, self.hstore, self.bigint_unsigned)
        named = zip(_SETTINGS.items(), values, strict=True)
        return {name: value for (name, setting), value in named if connector in setting.connectors}


def values_of(name: str) -> tuple[str, ...]:
    """Return the values that a property may have."""
    return _SETTINGS[name].values


def default_of(connector: str, name: str) -> str:
    """Return the value that a property has where the connector is not told it."""
    is_time_of_mysql = connector in _MYSQL and name == "time.precision.mode"
    return "adaptive_time_microseconds" if is_time_of_mysql else _SETTINGS[name].values[0]


def checked_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with their values as the connectors spell them.

    :raises ConfigurationError: when no connector knows a property, or a value of it.
    """
    given = {name: value.strip().lower() for name, value in properties.items()}
    for name, value in given.items():
        if name not in _SETTINGS:
            raise ConfigurationError(
                f"{name} does not change how columns are spelled; expected one of {', '.join(_SETTINGS)}.", next_step="Leave it out."
            )
        _check_value(name, value, _SETTINGS[name].values)
    return given


def _check(connector: str, name: str, value: str) -> None:
    setting = _SETTINGS[name]
    if connector not in setting.connectors:
        raise ConfigurationError(
            f"{name} is given, which the {connector} connector does not have or does not mind.", next_step="Leave it out."
        )
    # MySQL's and MariaDB's connectors refuse to start with "adaptive".
    _check_value(name, value, [each for each in setting.values if connector not in _MYSQL or each != "adaptive"])


def _check_value(name: str, value: str, values: Sequence[str]) -> None:
    if value not in values:
        raise ConfigurationError(
            f"{name} is {value!r}, expected one of {', '.join(values)}.",
            next_step="Take the value from the connector's configuration; leave it out where that does not have it.",
        )
