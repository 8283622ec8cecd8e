"""The row images and keys of a microbatch that carry no schema: what their values show of the columns' types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from airflow_cdc.pipeline.decode.types.infer_types import infer_types
from airflow_cdc.pipeline.decode.types.seen_values import SeenValues, look_at_values


class Images(Protocol):
    """Row images and keys; both methods know their columns by today's names."""

    def types(self, columns: Collection[str]) -> dict[str, str]:
        """Return a Spark SQL type for each of the columns with a value."""

    def values(self, columns: Collection[str]) -> dict[str, SeenValues]:
        """Return the observations of each of the columns with a value."""


@dataclass(frozen=True)
class ImagesInSpark:
    """Images that a Spark job reads, once for each question."""

    read: Callable[[], DataFrame]
    """Returns the images, in one column ``image`` (VARIANT)."""
    renames: Mapping[str, str]
    """Current names by former ones."""

    def types(self, columns: Collection[str]) -> dict[str, str]:
        """Return a Spark SQL type for each of the columns with a value."""
        return infer_types(self.read(), columns, self.renames)

    def values(self, columns: Collection[str]) -> dict[str, SeenValues]:
        """Return the observations of each of the columns with a value."""
        return look_at_values(self.read(), columns, self.renames)
