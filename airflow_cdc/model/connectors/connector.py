"""The form of a connector's entry.

An entry is data. SQL is plain text over ``source``, the source block of an event whose members are all text, or over ``payload``, the
event's value; so the Airflow layer and the pipeline read the same entry. Positions are numbers and are compared as numbers
(:class:`airflow_cdc.model.position.position.Position`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc.model.catalogue.columns import CatalogueColumn, Rule
from airflow_cdc.model.catalogue.queries import Queries
from airflow_cdc.model.catalogue.row_hashes import Dialect

NUMBER = "DECIMAL(38,0)"
"""SQL type of a position's commit and change."""

PLACEHOLDER = "__debezium_unavailable_value"
"""The text in place of a large value that an event leaves out."""

ENVELOPE_OF_A_ROW = "envelope of a row"
"""Shape of a value: Debezium's envelope whose images are rows of a table."""
ENVELOPE_OF_A_DOCUMENT = "envelope of a document"
"""Shape of a value: Debezium's envelope whose images are documents as JSON text; an update may carry only its changes."""
CDL_JSON = "CDL JSON"
"""Shape of a value: one of two other row envelopes, without a Kafka key, where one event may move a row to another key."""

AS_TEXT = "text"
"""Rule for a Connect type: keep the value's text."""
AS_SIGNED_TIME = "signed time"
"""Rule for a Connect type: a count of units since midnight is a duration, which may be negative or longer than a day."""
AS_LOCAL_TIMESTAMP = "local timestamp"
"""Rule for a Connect type: a timestamp without zone, as text."""


@dataclass(frozen=True)
class Spelling:
    """A position's form for people, besides our own numbers."""

    pattern: re.Pattern[str]
    """Matches the whole text."""
    read: Callable[[str], int]
    """Converts such a text to the commit part of a position."""
    write: Callable[[int], str]
    """Converts the commit part of a position, without its epoch, to such a text."""


@dataclass(frozen=True)
class PositionRule:
    """The rule for an event's position in the source's log."""

    fields: tuple[str, ...]
    """Members of ``source`` from which position and transaction are derived."""
    commit: str
    """SQL over ``source``: the transaction's position, NULL when it is missing."""
    change: str
    """SQL over ``source``: the change's position in the transaction."""
    serial: str = "0"
    """SQL over ``source``: the event's position in the change."""
    spelling: Spelling | None = None
    """None where people write positions as numbers."""
    goes_back: bool = True
    """Whether a restore, a reset or a failover may restart positions lower, as another epoch of the log. Otherwise an event with a lower
    position is late."""
    change_restarts: bool = False
    """Whether ``change`` may begin anew inside of a commit. Then the archive's order goes first among a commit's events in one run, and
    the database frees a key before another row takes it, so that repeats show (:mod:`airflow_cdc.pipeline.reconcile.find_repeats`)."""
    is_offset: bool = False
    """Whether the commit is the Kafka offset: it starts at 0 in each life of a topic, and does not compare with other topics' offsets."""
    log: tuple[str, ...] = ("name",)
    """Members of ``source`` that name the log; positions of two logs do not compare."""
    is_shared_by_rows: bool = False
    """Whether several rows may be created at one position; the events' raw values then distinguish them."""


@dataclass(frozen=True)
class NativeRule:
    """The same rules as SQL of the native engine (DuckDB) over ``source``; NULL for a text of another form, which is left to Spark."""

    commit: str
    change: str
    serial: str = "0"
    transaction: str = "CAST(NULL AS VARCHAR)"
    """As :attr:`Transactions.identity`."""


@dataclass(frozen=True)
class Transactions:
    """What distinguishes transactions."""

    identity: str = "CAST(NULL AS STRING)"
    """SQL over ``source``: a text unique to one transaction; NULL where the event names none."""
    share_commit: bool = True
    """Whether a transaction's events share its commit position; otherwise only the identity shows that they belong together."""


@dataclass(frozen=True)
class Snapshots:
    """What the reads of a snapshot carry."""

    are_marked: bool = True
    """Whether a read carries ``source.snapshot``."""
    initial: str = ""
    """SQL over ``source`` of a full snapshot's read: true for reads of a connector's initial snapshot only, never of a blocking one.
    Empty where reads do not show it."""
    initial_needs: str = ""
    """Member of ``source``, the transaction's identity, without which in the streamed events ``initial`` proves nothing; empty: none is
    needed."""


@dataclass(frozen=True)
class Images:
    """Content of an event's images."""

    before_has_omitted: bool = False
    """Whether an update's ``before`` may hold a large value that its ``after`` omits."""
    before_has_fillers: bool = False
    """Whether ``before`` may hold fillers in place of values, depending on the table's replica identity. Otherwise it is the whole row."""
    before_omits_large: bool = False
    """Whether NULL in a large column of ``before`` may stand for a value that the source's log does not hold."""
    reads_are_whole: bool = True
    """Whether a read holds each value, so that the placeholder's text in one is a value of the row's."""
    names_may_change: bool = True
    """Whether a renamed column may appear under its older name."""


@dataclass(frozen=True)
class Types:
    """Connect types with the connector's own encoding, each with the name of a rule in ``pipeline/decode/types/connect_types.py``."""

    own: Mapping[str, str] = field(default_factory=dict)
    """By semantic type, only in this connector's events."""
    by_ending: Mapping[str, str] = field(default_factory=dict)
    """By the last three words of a semantic type that only this connector writes."""


@dataclass(frozen=True)
class Flattened:
    """How a record flattened by ``ExtractNewRecordState`` shows its connector, where it does not name it."""

    fields: tuple[str, ...]
    """The record carries one of these members of ``source``."""
    pattern: str = ""
    """Regular expression that one of their values must match; empty for any value. It separates connectors with the same fields."""
    may_be_anothers: bool = False
    """Whether other connectors write these fields too; those are tested first."""


@dataclass(frozen=True)
class Cut:
    """How an END record's ``id`` shows the transaction's position; without it ENDs are ordered by time."""

    pattern: re.Pattern[str]
    """Matches the whole ``id``; group ``key`` is shared by all records of the transaction, group ``place`` is its position."""
    read: Callable[[str], int]
    """Converts the text of group ``place`` to a number that compares with commit positions."""


@dataclass(frozen=True)
class Catalogue:
    """The database's catalogue of columns, and the connector's fields for them."""

    queries: Queries
    column_of: Callable[[Sequence[Any]], CatalogueColumn]
    """Converts a row of ``queries.columns``."""
    field_of: Rule
    settings: Mapping[str, tuple[str, ...]]
    """By configuration property that changes how columns are encoded: its values, the default first."""
    connection_type: str
    """Airflow's connection type for this database only."""
    provider: str
    """Package of the connection type."""
    placeholder: str = ""
    """The driver's parameter placeholder, where its hook does not name it; ``:`` for numbered ones."""
    words: tuple[str, ...] = ()
    """Words that show the database in a JDBC URL or an ODBC driver's name, besides the connector's names."""
    name_query: str = ""
    """For a database with several possible connector names: SQL whose value contains the name, if it is not the first."""
    dialect: Dialect | None = None
    """How the database spells and hashes its rows; None where its tables are not compared by hashes."""


@dataclass(frozen=True)
class SchemaChanges:
    """What the schema-change topic shows about column types of values without a schema (``pipeline/decode/types/native_types.py``)."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """The assumed configuration, where it is not the default: for these settings the values themselves show their encoding."""
    texts: tuple[str, ...] = ()
    """Types that are texts in bare JSON, whatever a schema would declare."""
    unclear_with_length: tuple[str, ...] = ()
    """Prefixes of types that a length in the definition may turn into another type."""
    length_is_digits: tuple[str, ...] = ()
    """Types whose length is the number of fraction digits of the second."""
    fixed_digits: Mapping[str, int] = field(default_factory=dict)
    """Fraction digits of the second, by type without a length."""
    seconds: Mapping[str, int] = field(default_factory=dict)
    """By type: greatest distance of its times from zero, in seconds."""


@dataclass(frozen=True)
class Values:
    """How a value is recognised and read, where it is not Debezium's row envelope."""

    shape: str = ENVELOPE_OF_A_ROW
    """The value's shape, which selects its conversion to a row envelope (``pipeline/decode/value_shapes.py``)."""
    members: tuple[str, ...] = ()
    """Members, besides Debezium's, that ``recognised`` and ``kind`` use."""
    recognised: Mapping[str, str] = field(default_factory=dict)
    """By name: SQL over ``payload``, true for the connector's values; empty where ``source.connector`` names it."""
    kind: str = ""
    """SQL over ``payload``: the value's kind, an operation code or a :class:`~airflow_cdc.model.archive.survey.RecordKind`; NULL for
    others."""
    operation: str = ""
    """Member, in place of ``op``, that holds the operation."""
    image: str = ""
    """Member, in place of ``after``, that holds the row after the event."""
    key: str = ""
    """Member that holds the row's key, because records have none."""
    columns: tuple[str, ...] = ()
    """The columns of every row, the key first; empty where each table has its own."""
    null_key_means_no_key: bool = True
    """Whether a null key means a table without a key."""


@dataclass(frozen=True, eq=False)
class Connector:
    """One connector's entry."""

    names: tuple[str, ...]
    """The connector's names in ``source.connector``; the first is used for records that carry none."""
    title: str
    """The database's name, for people."""
    position: PositionRule
    transactions: Transactions = Transactions()
    native: NativeRule | None = None
    """None where only Spark reads the events."""
    snapshots: Snapshots = Snapshots()
    images: Images = Images()
    types: Types = Types()
    topic: tuple[str, ...] = ("db", "schema", "table")
    """Members of ``source`` that follow the prefix in a table's topic name."""
    package: str = ""
    """The connector's name inside its Connect schemas' names, where it differs."""
    flattened: Flattened | None = None
    """None where flattened records are not read."""
    cut: Cut | None = None
    catalogue: Catalogue | None = None
    """None where no catalogue can be read."""
    schema_changes: SchemaChanges | None = None
    """None where it writes no schema-change topic, or its types are not known."""
    values: Values = Values()

    @property
    def documents(self) -> bool:
        """Whether the rows are documents as JSON text; an update may carry only its changes."""
        return self.values.shape == ENVELOPE_OF_A_DOCUMENT

    @property
    def commit_identifies_transaction(self) -> bool:
        """Whether a transaction's events share its commit position."""
        return self.transactions.share_commit
