"""A user's declaration of an archive's layout and format, checked against its files. Reading does not depend on it: each file shows its
own form.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from airflow_cdc.model.archive.archived_files import ArchivedFile, FileFormat
from airflow_cdc.model.errors import ConfigurationError

_NAMED = 3


class ArchiveLayout(str, Enum):
    """How the data files are named."""

    AUTO = "auto"
    SINK = "sink"
    """``<topic>+<partition>+<offset>``, as Kafka Connect's sinks name them."""


class ArchiveFormat(str, Enum):
    """Format of the data files, by their names."""

    AUTO = "auto"
    JSON = "json"
    """Any text: lines or arrays of JSON, compressed or not."""
    AVRO = "avro"
    PARQUET = "parquet"


@dataclass(frozen=True)
class ArchiveShape:
    """The layout and format required of every data file of an archive."""

    layout: ArchiveLayout = ArchiveLayout.AUTO
    format: ArchiveFormat = ArchiveFormat.AUTO

    def check(self, archive: str, files: Collection[ArchivedFile]) -> None:
        """Check the names of an archive's data files.

        :param archive: the archive's name for people.
        :raises ConfigurationError: when other files are there, naming some of them.
        """
        others = [file.path for file in files if not self._fits(file)]
        if others:
            named = ", ".join(others[:_NAMED]) + (", …" if len(others) > _NAMED else "")
            raise ConfigurationError(
                f"{archive} shall hold files of layout {self.layout.value} and format {self.format.value} alone, "
                f"and {len(others)} of {len(files)} files are others: {named}.",
                next_step="Take them out of the archive, or set layout and format of the archive's connection to auto.",
            )

    def _fits(self, file: ArchivedFile) -> bool:
        if self.layout is ArchiveLayout.SINK and file.start_offset is None:
            return False
        form = file.format.value if file.format in (FileFormat.AVRO, FileFormat.PARQUET) else ArchiveFormat.JSON.value
        return self.format in (ArchiveFormat.AUTO, form)
