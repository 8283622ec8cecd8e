"""Fields in few words, as tests compare them."""

from __future__ import annotations

from typing import Any

from airflow_cdc.model.pull.settings import settings_of
from airflow_cdc.model.pull.source_column import source_column

DECIMAL = "org.apache.kafka.connect.data.Decimal"
TIME = "io.debezium.time"
CONNECT = "org.apache.kafka.connect.data"


def spelled(connector: str, row: tuple[Any, ...], **modes: str) -> tuple[Any, ...] | None:
    """Return type, name and parameters of the field that a row of the catalogue gives; None where it is not known.

    :param modes: ``decimal_handling_mode="string"``.
    """
    properties = {name.replace("_", "."): value for name, value in modes.items()}
    return _short(dict(source_column(connector, row, settings_of(connector, properties)).field))


def decimal(precision: int, scale: int) -> tuple[Any, ...]:
    return ("bytes", DECIMAL, {"scale": str(scale), "connect.decimal.precision": str(precision)})


def _short(field: dict[str, Any]) -> tuple[Any, ...] | None:
    if not field:
        return None
    inner = _short(field["items"]) if "items" in field else None
    return tuple(part for part in (field["type"], field.get("name"), field.get("parameters"), inner) if part)
