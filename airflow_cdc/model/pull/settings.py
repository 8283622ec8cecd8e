"""The connector's settings that determine how column values are encoded: given ones, and its defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple

from airflow_cdc.model.catalogue.modes import PROPERTIES, ConnectorSettings
from airflow_cdc.model.connectors.connector import Catalogue
from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.errors import ConfigurationError


def catalogues() -> dict[str, Catalogue]:
    """Return the catalogues that can be read, by connector (``source.connector``)."""
    return {name: entry.catalogue for name, entry in CONNECTORS.items() if entry.catalogue}


def settings_of(connector: str, properties: Mapping[str, str] | None = None) -> ConnectorSettings:
    """Return the settings of a connector.

    :param connector: one of :func:`catalogues`.
    :param properties: the given settings, by their names in the connector's configuration; the others have their defaults.
    :raises ConfigurationError: when a property or its value is not known, or the connector does not have it.
    """
    given = checked_properties(properties or {})
    for name, value in given.items():
        _check(connector, name, value)
    return ConnectorSettings(*(given.get(name, default_of(connector, name)) for name in PROPERTIES))


def properties_of(settings: ConnectorSettings, connector: str) -> dict[str, str]:
    """Return the settings that a connector has, by their names in its configuration."""
    had = catalogues()[connector].settings
    return {name: value for name, value in zip(PROPERTIES, astuple(settings), strict=True) if name in had}


def values_of(name: str) -> tuple[str, ...]:
    """Return the values that a property may have."""
    return PROPERTIES[name]


def default_of(connector: str, name: str) -> str:
    """Return a property's default in a connector."""
    return catalogues()[connector].settings.get(name, PROPERTIES[name])[0]


def checked_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with their values in the connectors' spelling.

    :raises ConfigurationError: when no connector knows a property, or a value of it.
    """
    given = {name: value.strip().lower() for name, value in properties.items()}
    for name, value in given.items():
        if name not in PROPERTIES:
            raise ConfigurationError(
                f"{name} does not change how columns are spelled; expected one of {', '.join(PROPERTIES)}.", next_step="Leave it out."
            )
        _check_value(name, value, PROPERTIES[name])
    return given


def _check(connector: str, name: str, value: str) -> None:
    had = catalogues()[connector].settings
    if name not in had:
        raise ConfigurationError(
            f"{name} is given, which the {connector} connector does not have or does not mind.", next_step="Leave it out."
        )
    _check_value(name, value, had[name])


def _check_value(name: str, value: str, values: Sequence[str]) -> None:
    if value not in values:
        raise ConfigurationError(
            f"{name} is {value!r}, expected one of {', '.join(values)}.",
            next_step="Take the value from the connector's configuration; leave it out where that does not have it.",
        )
