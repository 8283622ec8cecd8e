"""What a user says that an archive holds, checked against what lies there. Nothing is read by it: each file says itself what it is."""

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
    """What the data files are, as their names tell it."""

    AUTO = "auto"
    JSON = "json"
    """Any text: lines or arrays of JSON, compressed or not."""
    AVRO = "avro"
    PARQUET = "parquet"


@dataclass(frozen=True)
class ArchiveShape:
    """The layout and the format that every data file of an archive shall have."""

    layout: ArchiveLayout = ArchiveLayout.AUTO
    format: ArchiveFormat = ArchiveFormat.AUTO

    def check(self, archive: str, files: Collection[ArchivedFile]) -> None:
        """Compare the names of data files of an archive with this.

        :param archive: the archive as a person knows it.
        :raises ConfigurationError: when there are others, naming some of them.
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
        told = file.format.value if file.format in (FileFormat.AVRO, FileFormat.PARQUET) else ArchiveFormat.JSON.value
        return self.format in (ArchiveFormat.AUTO, told)
