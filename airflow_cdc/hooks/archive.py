"""CdcArchiveHook: where the archived change events are, and which of them are pending."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from enum import Enum
from functools import cached_property
from typing import Any, TypeVar

from airflow_cdc.hooks.connection_fields import extra
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.hooks.storage import CdcStorageHook
from airflow_cdc.model.archive.archive_shape import ArchiveFormat, ArchiveLayout, ArchiveShape
from airflow_cdc.model.archive.archived_files import classify_infos, modified_at
from airflow_cdc.model.archive.interval import Interval
from airflow_cdc.model.errors import ArchiveNotFoundError, ConfigurationError
from airflow_cdc.model.look.lag import Lag, find_lag
from airflow_cdc.model.look.pending import ALWAYS, PendingFiles, pending_files

_Choice = TypeVar("_Choice", bound=Enum)
_LITTLE = 64 * 1024**2


class CdcArchiveHook(CdcStorageHook):
    """Reach an archive of change events, one topic per table.

    :param archive_conn_id: connection of type ``cdc_archive``.
    """

    conn_name_attr = "archive_conn_id"
    default_conn_name = "cdc_archive_default"
    conn_type = "cdc_archive"
    hook_name = "CDC archive"
    what = "archive"
    example = "s3://bucket/topics"

    def __init__(self, archive_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(archive_conn_id, **kwargs)

    @cached_property
    def shape(self) -> ArchiveShape:
        """The archive's shape, as the connection declares it.

        :raises ConfigurationError: when the declared layout or format does not exist.
        """
        fields = self.connection.extra_dejson
        return ArchiveShape(self._choice(ArchiveLayout, fields, "layout"), self._choice(ArchiveFormat, fields, "format"))

    @property
    def source_conn_id(self) -> str | None:
        """Airflow connection of the database that the events come from; None where the connection does not name it."""
        named: str | None = extra(self.connection, "source_conn_id")
        return named

    def _choice(self, choices: type[_Choice], fields: dict[str, Any], name: str) -> _Choice:
        given = fields.get(name) or "auto"
        try:
            return choices(given)
        except ValueError as error:
            known = ", ".join(str(choice.value) for choice in choices)
            raise ConfigurationError(
                f"Connection {self.conn_id}: its {name} is {given!r}.", next_step=f"Set it to one of {known}."
            ) from error

    def pending(self, lake: CdcLakeHook, tables: Iterable[str] = (), *, interval: Interval = ALWAYS) -> PendingFiles:
        """Return the pending files of the flows whose names match ``tables`` (globs; none: every flow).

        :param interval: when they were archived.
        :raises ArchiveNotFoundError: when the archive's root does not exist.
        """
        return pending_files(**self.beside(lake), tables=tables, interval=interval)

    def lag(self, lake: CdcLakeHook, tables: Iterable[str] = ()) -> tuple[Lag, dict[str, Lag]]:
        """Return the lag of the flows as of now (:func:`airflow_cdc.model.look.lag.find_lag`).

        :raises ArchiveNotFoundError: when the archive's root does not exist.
        """
        return find_lag(**self.beside(lake), tables=tables, now=time.time())

    def beside(self, lake: CdcLakeHook) -> dict[str, Any]:
        """Return the locations of both, as keyword arguments for the functions of ``airflow_cdc.model``."""
        places = {"archive_root": self.fs_root, "archive": self.root, "lake_root": lake.fs_root}
        return {"archive_fs": self.fs, "lake_fs": lake.fs, **places}

    def little_waits(self, lake: CdcLakeHook, tables: Iterable[str] = ()) -> bool:
        """Return whether little is certainly pending: Spark is then started for a short job.

        False also where Airflow cannot see the storage: the job's own error is more useful than a guess here.
        """
        try:
            pending = self.pending(lake, tables)
        except Exception:  # noqa: BLE001
            return False
        size = sum(file.text_size for file in pending.unsurveyed)
        return not pending.planned and not pending.waiting and size < _LITTLE

    def _findings(self) -> str:
        if not self.fs.exists(self.fs_root):
            self.refuse_missing_bucket()
            raise ArchiveNotFoundError(f"There is no archive at {self.root}.", next_step="Check the archive's root URL.")
        found: dict[str, Any] = self.fs.find(self.fs_root, detail=True)
        prefix = self.fs_root.rstrip("/") + "/"
        listing = classify_infos((path.removeprefix(prefix), info) for path, info in found.items())
        self.shape.check(self.root, listing.files)
        if not listing.files:
            return f"{self.root} is there and holds no archived events yet ({len(listing.ignored)} other files)."
        topics = {file.topic for file in listing.files}
        newest = max((modified_at(found[prefix + file.path]) or 0, file.path) for file in listing.files)
        when = datetime.fromtimestamp(newest[0], timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC") if newest[0] else "time unknown"
        return f"{self.root} holds {len(listing.files)} files of {len(topics)} topics; newest: {newest[1]} ({when})."


def table_globs(tables: str | Sequence[str] | None, *, must_name: bool = False) -> list[str]:
    """Return the globs that a user gave: None, one text separated by commas or blanks, or a sequence of texts.

    :param must_name: whether only None selects every flow: a template that renders to nothing must not repair every table.
    :raises ConfigurationError: for what is there and names nothing, such as ``" "`` or ``[","]``.
    """
    texts = [tables] if isinstance(tables, str) else tables or []
    globs = [glob for text in texts for glob in re.split(r"[,\s]+", str(text)) if glob]
    if not globs and (tables or (must_name and tables is not None)):
        raise ConfigurationError(f"{tables!r} names nothing.", next_step="Write a name, a pattern, or * for all.")
    return globs


def pending_summary(pending: PendingFiles) -> dict[str, Any]:
    """Return the pending files as a small JSON object: their number, and the number by topic."""
    topics = Counter(file.topic for file in pending.unsurveyed)
    topics.update(pending.planned or {})
    return {"files": pending.count, "topics": dict(sorted(topics.items()))}
