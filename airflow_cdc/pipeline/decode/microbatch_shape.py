"""The shape of a microbatch: everything on which decoding it depends, and what follows from that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import TopicShape
from airflow_cdc.model.columns import KIND
from airflow_cdc.model.connectors.connector import Connector
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.position.lives import Lives
from airflow_cdc.pipeline.decode.foreign_shapes import NONE_FOREIGN, Foreign
from airflow_cdc.pipeline.decode.key_changes import keys_of_records
from airflow_cdc.pipeline.decode.key_guard import KeyGuard, Updates, defaults_of
from airflow_cdc.pipeline.decode.source_columns import SourceColumns, is_schema
from airflow_cdc.pipeline.decode.unavailable_values import may_be_unavailable
from airflow_cdc.pipeline.decode.value_shape import ValueShape
from airflow_cdc.pipeline.decode.value_shapes import shape_of


@dataclass(frozen=True)
class MicrobatchShape:
    """Everything on which decoding one microbatch depends."""

    topic: str
    files: Sequence[ArchivedFile]
    shapes: Sequence[TopicShape]
    columns: SourceColumns
    dialect: Connector
    keeps_deleted: bool = False
    """Whether a deleted row keeps its values. If so, a delete reports every column except the key as unavailable."""
    foreign: Foreign = NONE_FOREIGN
    """The shapes whose records are rejected."""
    lives: Lives = field(default_factory=dict)
    """The lives of the topic, by file."""
    epochs: Epochs = field(default_factory=Epochs)
    """Where epochs of the source's log begin."""
    images_are_whole: bool = False
    """Whether the flow says that the before images of its PostgreSQL table are whole rows."""
    files_are_in_order: bool = False
    """Whether the names of files without offsets give their order."""
    without_key: bool = False
    """Whether only its content identifies a row. If so, the whole before image is decoded too."""
    updates: Updates = field(default_factory=Updates)
    """What the microbatch's updates and deletes show of the before images, where records do not carry the flow's keys."""

    @property
    def change_restarts(self) -> bool:
        """Whether changes may begin anew inside of a commit, see :class:`airflow_cdc.model.connectors.connector.PositionRule`.

        Not asked without a key: what repeats shows by keys, which one row has at a time. Equal rows of such a table are two.
        """
        return self.dialect.position.change_restarts and not self.without_key

    @property
    def in_whole(self) -> str:
        """The SQL that is true for an event whose image leaves nothing out, whatever its values look like."""
        return f"coalesce({KIND} = 'r', false)" if self.dialect.images.reads_are_whole else "false"

    @cached_property
    def value_shape(self) -> ValueShape:
        """The shape of the topic's values."""
        return shape_of(self.dialect)

    @cached_property
    def keys_of_records(self) -> frozenset[str]:
        """The columns that are in the key of each row event."""
        return keys_of_records(self.shapes, self.columns.keys)

    @property
    def has_own_keys(self) -> bool:
        """Whether the flow's keys have a column that is not in every record's key, so that the connector does not split their changes."""
        is_table = not (self.without_key or self.dialect.values.columns)
        return is_table and not self.keys_of_records.issuperset(self.columns.keys)

    @property
    def splits_key_changes(self) -> bool:
        """Whether an update may be a key change, and becomes two events."""
        return not self.without_key and (self.has_own_keys or not self.value_shape.splits_key_changes)

    @property
    def updates_without_old_key(self) -> int:
        """Updates in which a change of the flow's key would not be seen; 0 where the keys of records are not archived."""
        are_known = any(shape.key_shape for shape in self.shapes)
        return self.updates.unseen if self.has_own_keys and are_known else 0

    @cached_property
    def image_columns(self) -> list[str]:
        """All columns of a row image, those without a type so far among them."""
        names = [*self.columns.types, *self.columns.untyped]
        return names + [key for key in self.columns.keys if key not in names]

    @property
    def hashed_columns(self) -> list[str]:
        """The columns of an image's hashes, in order. Left out: keys, and columns whose equal values may differ as text."""
        return [name for name in self.image_columns if name not in {*self.columns.keys, *self.columns.by_schema}]

    @property
    def omitted_before(self) -> frozenset[str]:
        """The columns in which NULL of a before image may stand for a value that it does not carry."""
        return frozenset(self.large_columns) if self.dialect.images.before_omits_large else frozenset()

    @cached_property
    def guard(self) -> KeyGuard:
        """What proves the key of a delete."""
        shapes = [shape for shape in self.shapes if shape.value_shape]
        return KeyGuard(
            self.columns.keys,
            of_records=self.keys_of_records,
            has_fillers=self.dialect.images.before_has_fillers and self.value_shape.splits_key_changes and not self.without_key,
            are_own=self.has_own_keys,
            are_declared_whole=self.images_are_whole,
            defaults=defaults_of(shapes) if all(is_schema(shape.value_shape or "") for shape in shapes) else None,
        )

    @cached_property
    def large_columns(self) -> list[str]:
        """The columns whose value an event may leave out."""
        return [name for name, rule in self.columns.types.items() if may_be_unavailable(rule.sql_type)]
