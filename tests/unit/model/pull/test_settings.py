"""The connector's settings: defaults, and what no connector takes."""

from __future__ import annotations

import pytest

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.pull.settings import catalogues, properties_of, settings_of


def test_the_defaults_are_those_of_each_connector() -> None:
    assert properties_of(settings_of("postgresql"), "postgresql") == {
        "decimal.handling.mode": "precise",
        "time.precision.mode": "adaptive",
        "binary.handling.mode": "bytes",
        "interval.handling.mode": "numeric",
        "hstore.handling.mode": "json",
    }
    assert properties_of(settings_of("mysql"), "mysql") == {
        "decimal.handling.mode": "precise",
        "time.precision.mode": "adaptive_time_microseconds",
        "binary.handling.mode": "bytes",
        "bigint.unsigned.handling.mode": "long",
    }
    assert properties_of(settings_of("db2"), "db2") == {"decimal.handling.mode": "precise", "time.precision.mode": "adaptive"}


@pytest.mark.parametrize("connector", list(catalogues()))
def test_settings_that_are_given_again_are_the_same(connector: str) -> None:
    settings = settings_of(connector, {"decimal.handling.mode": " String "})
    assert settings.decimal == "string"
    assert settings_of(connector, properties_of(settings, connector)) == settings


@pytest.mark.parametrize(
    ("connector", "name", "value", "message"),
    [
        ("postgresql", "decimal.handling.mode", "exact", "'exact', expected one of precise, double, string"),
        ("postgresql", "topic.prefix", "shop", "topic.prefix does not change how columns are spelled"),
        ("sqlserver", "hstore.handling.mode", "map", "which the sqlserver connector does not have"),
        ("db2", "binary.handling.mode", "hex", "which the db2 connector does not have or does not mind"),
        ("mysql", "time.precision.mode", "adaptive", "expected one of adaptive_time_microseconds, connect"),
    ],
)
def test_what_a_connector_does_not_take_is_refused(connector: str, name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        settings_of(connector, {name: value})
