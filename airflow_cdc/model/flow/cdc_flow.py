"""CdcFlow: applies one topic to one target table, with its policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from airflow_cdc.model.columns import is_reserved
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.declared_column import DeclaredColumn, declared_columns
from airflow_cdc.model.flow.document_columns import DocumentColumn, document_columns
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.flow.policies import (
    OnAllRejected,
    OnDelete,
    OnDroppedColumn,
    OnForeignChange,
    OnGap,
    OnLogWentBack,
    OnMissingFile,
    OnOtherLog,
    OnRepeatedOffsets,
    OnSnapshot,
    OnTruncate,
    OnUnknownOrder,
    OnUnknownTypes,
    ReplicaIdentity,
    WriteDisposition,
)
from airflow_cdc.model.flow.scd_columns import ScdColumns, scd_columns
from airflow_cdc.model.flow.setting_forms import catalog_name, newer_names, one_of, positive, text, text_or_none, texts
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.flow.warn_above import WarnAbove, warn_above
from airflow_cdc.model.places import is_place, place_at

DEFAULT_MICROBATCH_BYTES = 1024**3
SCD_TYPES = (1, 2)
BY_KEY = "key"
"""Clusters a table by the columns of its key."""


@dataclass(frozen=True)
class CdcFlow:
    """One topic, one target table. Validated here once; later code relies on it."""

    topic: str
    """Kafka topic whose archived events are applied; also the flow's name."""
    table: str | None = None
    """Target table: a path below the lake, or a URI; None: the topic's name."""
    keys: tuple[str, ...] = ()
    """Columns that identify a row; empty: the columns of the events' own keys."""
    columns: Mapping[str, str | DeclaredColumn] = field(default_factory=dict)
    """Types by column, as Spark SQL spells them, or with their encoding in bare JSON. They take precedence over what the events carry."""
    on_truncate: OnTruncate = OnTruncate.APPLY
    """What a TRUNCATE in the source does to the target."""
    max_microbatch_bytes: int = DEFAULT_MICROBATCH_BYTES
    """Most archived bytes, compressed or not as in the archive, that one microbatch takes."""
    on_gap: OnGap = OnGap.WARN
    """What happens when Kafka offsets are missing from the archive."""
    stored_as_scd_type: int = 1
    """1: current rows; 2: every row version with its validity interval."""
    on_delete: OnDelete = OnDelete.REMOVE
    """What a DELETE in the source does to the target's row."""
    write_disposition: WriteDisposition = WriteDisposition.MERGE
    """Whether events are merged by key or appended as a change log."""
    catalog_table: tuple[str, ...] = ()
    """Name of the table in Spark's catalog, by part: schema and table, with a catalog first where it is not the session's; empty: none."""
    document_columns: Mapping[str, DocumentColumn] = field(default_factory=dict)
    """Typed columns beside ``document`` in a table of MongoDB's documents, by name."""
    on_dropped_column: OnDroppedColumn = OnDroppedColumn.KEEP
    """What a row holds in a column that its last event's schema lacks."""
    renamed_columns: Mapping[str, str] = field(default_factory=dict)
    """The table's column names by older names that events may use. The schema-change topic supplies renames too."""
    on_snapshot: OnSnapshot = OnSnapshot.AUTO
    """What a complete later snapshot does to the rows that it does not find."""
    on_log_went_back: OnLogWentBack = OnLogWentBack.STOP
    """What happens when the source's log goes back without a snapshot."""
    on_other_log: OnOtherLog = OnOtherLog.STOP
    """What happens when events name another log than the flow's earlier ones."""
    on_unknown_order: OnUnknownOrder = OnUnknownOrder.STOP
    """How events with one position are ordered if the archive does not show their order."""
    replica_identity: ReplicaIdentity = ReplicaIdentity.UNKNOWN
    """What the before images of a PostgreSQL table hold."""
    on_repeated_offsets: OnRepeatedOffsets = OnRepeatedOffsets.STOP
    """How repeated offsets are understood where the archive does not prove it."""
    table_column: str | None = None
    """Column that holds the name of the source's table, where several tables share the topic and the keys do not name it."""
    cluster_by: str | tuple[str, ...] = ()
    """Columns by which maintenance clusters the table, :data:`BY_KEY` for its key's; empty: left as it is."""
    on_all_rejected: OnAllRejected = OnAllRejected.STOP
    """What happens when every event is rejected before the flow has a table."""
    on_missing_file: OnMissingFile = OnMissingFile.STOP
    """What happens when a late part of a transaction needs an applied file that is gone from the archive."""
    on_foreign_change: OnForeignChange = OnForeignChange.STOP
    """What happens when somebody else changed rows of the target."""
    on_unknown_types: OnUnknownTypes | None = None
    """What happens before a column is made whose JSON values look as if they encode something else; None: not set."""
    engine: Engine | None = None
    """What decodes, folds and merges the microbatches; None: not set."""
    scd_columns: ScdColumns = field(default_factory=ScdColumns)
    """Names of the columns of a table that keeps versions."""
    warn_above: WarnAbove = field(default_factory=WarnAbove)
    """From how much on rejects and the like ask for a person's look."""

    def __post_init__(self) -> None:
        if not self.topic:
            raise ConfigurationError("A flow has no topic.", next_step="Give every flow of the flows file a topic.")
        if self.max_microbatch_bytes < 1:
            raise ConfigurationError(
                f"Flow {self.topic}: max_microbatch_bytes is {self.max_microbatch_bytes}, expected a positive number.",
                next_step="Set it to the archived bytes that one microbatch may take.",
            )
        if self.table and not is_place(self.table):
            raise ConfigurationError(
                f"Flow {self.topic}: table {self.table!r} is no place below the lake that a table may have.",
                next_step="Name a folder below the lake, outside of its _cdc, or give a whole path or URL.",
            )
        named = (*self.keys, *self.columns, *self.document_columns, *self.renamed_columns.values())
        reserved = [name for name in named if is_reserved(name)]
        if reserved:
            raise ConfigurationError(
                f"Flow {self.topic}: columns {reserved} start with the reserved prefix __cdc_.",
                next_step="Rename them in the flows file.",
            )
        self._refuse_columns_of_one_name()
        self.scd_columns.refuse_columns((*named, *filter(None, [self.table_column])), self.topic)
        self._refuse_modes_that_exclude_each_other()

    def _refuse_columns_of_one_name(self) -> None:
        if not self.document_columns:
            return
        # Dag files import this module, and few flows have documents. Delta compares names without case.
        from airflow_cdc.model.connectors.mongodb import DOCUMENT, KEY

        names = [name.lower() for name in (KEY, DOCUMENT, *self.document_columns)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigurationError(
                f"Flow {self.topic}: document_columns has names that the table of documents has already, or twice but for case: {twice}.",
                next_step="Give the columns other names: {path: …, type: …} names the value's place.",
            )

    def _refuse_modes_that_exclude_each_other(self) -> None:
        if self.stored_as_scd_type not in SCD_TYPES:
            raise ConfigurationError(
                f"Flow {self.topic}: stored_as_scd_type is {self.stored_as_scd_type}, expected one of {list(SCD_TYPES)}.",
                next_step="Set it to 1 for the rows as they are now, or to 2 for all their versions.",
            )
        appends, flags = self.write_disposition is WriteDisposition.APPEND, self.on_delete is OnDelete.FLAG
        chosen = {"write_disposition: append": appends, "stored_as_scd_type: 2": self.stored_as_scd_type > 1, "on_delete: flag": flags}
        together = [setting for setting, is_set in chosen.items() if is_set]
        if len(together) > 1:
            raise ConfigurationError(
                f"Flow {self.topic}: {' and '.join(together)} exclude each other: a change log holds events instead of rows, and versions"
                " of deleted rows stay without a flag.",
                next_step="Keep one of them.",
            )
        if self.on_dropped_column is OnDroppedColumn.CLEAR and self.mode not in (TableMode.CURRENT, TableMode.FLAGGED):
            raise ConfigurationError(
                f"Flow {self.topic}: on_dropped_column: clear is for tables of rows as they are now; this one keeps each event's row.",
                next_step="Take it out of the flow's settings, or set stored_as_scd_type and write_disposition back.",
            )
        if self.scd_columns != ScdColumns() and self.mode is not TableMode.VERSIONS:
            raise ConfigurationError(
                f"Flow {self.topic}: scd_columns is for tables that keep versions; this one keeps another history ({self.mode.value}).",
                next_step="Take it out of the flow's settings, or set stored_as_scd_type to 2.",
            )

    @cached_property
    def declared(self) -> dict[str, DeclaredColumn]:
        """The flow's declared columns by name."""
        return {name: DeclaredColumn(column) if isinstance(column, str) else column for name, column in self.columns.items()}

    @property
    def files_are_in_order(self) -> bool:
        """Whether the names of archived files without offsets give their order."""
        return self.on_unknown_order is OnUnknownOrder.FILE_NAMES

    @property
    def images_are_whole(self) -> bool:
        """Whether the before images of a PostgreSQL table are whole rows, as the flow says."""
        return self.replica_identity is ReplicaIdentity.FULL

    @property
    def mode(self) -> TableMode:
        """What the target table keeps."""
        if self.write_disposition is WriteDisposition.APPEND:
            return TableMode.CHANGE_LOG
        if self.stored_as_scd_type > 1:
            return TableMode.VERSIONS
        return TableMode.FLAGGED if self.on_delete is OnDelete.FLAG else TableMode.CURRENT

    @property
    def name(self) -> str:
        """The flow's name: its topic."""
        return self.topic

    @property
    def has_place(self) -> bool:
        """Whether the table's path, by default the topic's name, is one that a table may have."""
        return is_place(self.table or self.topic)

    def table_path(self, lake: str) -> str:
        """Return the URI of the target table."""
        return place_at(lake, self.table or self.topic)

    @classmethod
    def from_mapping(cls, entry: Mapping[str, Any]) -> CdcFlow:
        """Build a flow from one entry of a flows file.

        :raises ConfigurationError: for a setting that does not exist or has the wrong shape.
        """
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(entry) - known)
        if unknown:
            raise ConfigurationError(
                f"Flow {entry.get('topic', '?')}: unknown settings {unknown}, known are {sorted(known)}.",
                next_step="Correct the flows file.",
            )
        values = {setting: _read(entry, setting) for setting in entry}
        if "topic" not in values:
            raise ConfigurationError("A flow has no topic.", next_step="Give every flow of the flows file a topic.")
        return cls(**values)


def _read(entry: Mapping[str, Any], setting: str) -> Any:
    try:
        return _READERS[setting](entry[setting])
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"Flow {entry.get('topic', '?')}: {setting} is {entry[setting]!r}, expected {error}.", next_step="Correct the flows file."
        ) from error


def _columns_or_key(value: Any) -> str | tuple[str, ...]:
    if value == BY_KEY:
        return BY_KEY
    if not isinstance(value, list | tuple):
        raise TypeError(f"a list of columns, or {BY_KEY}")
    return texts(value)


def _scd_type(value: Any) -> int:
    # A bool is an int, and equals 1.
    if isinstance(value, bool) or value not in SCD_TYPES:
        raise ValueError(f"one of {list(SCD_TYPES)}")
    return int(value)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "topic": text,
    "table": text_or_none,
    "keys": texts,
    "columns": declared_columns,
    "document_columns": document_columns,
    "on_truncate": one_of(OnTruncate),
    "on_gap": one_of(OnGap),
    "on_snapshot": one_of(OnSnapshot),
    "on_log_went_back": one_of(OnLogWentBack),
    "on_other_log": one_of(OnOtherLog),
    "on_unknown_order": one_of(OnUnknownOrder),
    "replica_identity": one_of(ReplicaIdentity),
    "on_repeated_offsets": one_of(OnRepeatedOffsets),
    "table_column": text_or_none,
    "on_all_rejected": one_of(OnAllRejected),
    "on_missing_file": one_of(OnMissingFile),
    "on_foreign_change": one_of(OnForeignChange),
    "on_unknown_types": one_of(OnUnknownTypes),
    "max_microbatch_bytes": positive,
    "engine": one_of(Engine),
    "stored_as_scd_type": _scd_type,
    "scd_columns": scd_columns,
    "warn_above": warn_above,
    "on_delete": one_of(OnDelete),
    "renamed_columns": newer_names,
    "on_dropped_column": one_of(OnDroppedColumn),
    "write_disposition": one_of(WriteDisposition),
    "cluster_by": _columns_or_key,
    "catalog_table": lambda value: catalog_name(text(value)),
}
