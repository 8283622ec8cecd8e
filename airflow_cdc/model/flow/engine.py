"""Engine: what decodes, folds and merges a flow's microbatches."""

from __future__ import annotations

from enum import Enum

from airflow_cdc.model.errors import ConfigurationError


class Engine(str, Enum):
    """Both engines give the same tables and reports."""

    AUTO = "auto"
    """The native engine for microbatches that it surely reads as Spark does, where its packages are installed; else Spark."""
    SPARK = "spark"
    """Spark for every microbatch."""
    NATIVE = "native"
    """As ``auto``; without the native engine's packages the flow stops."""


DEFAULT_ENGINE = Engine.AUTO
MIXED = "mixed"
"""In reports, beside ``spark`` and ``native``: the native engine decoded and folded the microbatch, and Spark merged it."""


def engine_of(text: str | None) -> Engine | None:
    """Return the engine of a setting; None where it is not set.

    :raises ConfigurationError: for another text.
    """
    if not text:
        return None
    if text not in (choices := [each.value for each in Engine]):
        raise ConfigurationError(f"engine is {text!r}, expected one of {choices}.", next_step="Correct the setting.")
    return Engine(text)
