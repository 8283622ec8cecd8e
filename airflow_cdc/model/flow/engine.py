"""Engine: what decodes, folds and merges a flow's microbatches."""

from __future__ import annotations

from enum import Enum


class Engine(str, Enum):
    """Both engines give the same tables and reports."""

    AUTO = "auto"
    """The native engine for microbatches that it surely reads as Spark does, where its packages are installed; else Spark."""
    SPARK = "spark"
    """Spark for every microbatch."""
    NATIVE = "native"
    """As ``auto``; without the native engine's packages the flow stops."""
