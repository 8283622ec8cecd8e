"""What is known of a connector: the form of one entry.

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

NUMBER = "DECIMAL(38,0)"
"""SQL type of a position's commit and change."""

ENVELOPE_OF_A_ROW = "envelope of a row"
"""Shape of a value: Debezium's envelope, whose images are a row of a table."""
ENVELOPE_OF_A_DOCUMENT = "envelope of a document"
"""Shape of a value: Debezium's envelope, whose images are documents as JSON text; an update may carry only what changed."""
CDL_JSON = "CDL JSON"
"""Shape of a value: one of two other envelopes of a row, without a Kafka key, where one event may move a row to another key."""

AS_TEXT = "text"
"""Rule of a Connect type: the value's text is kept."""
AS_SIGNED_TIME = "signed time"
"""Rule of a Connect type: a count of units since midnight is a span, which may be negative or longer than a day."""
AS_LOCAL_TIMESTAMP = "local timestamp"
"""Rule of a Connect type: a timestamp without zone, as text."""


@dataclass(frozen=True)
class Spelling:
    """How people write a position, beside our own numbers."""

    pattern: re.Pattern[str]
    """To be matched as a whole."""
    read: Callable[[str], int]
    """From such a text to the commit part of a position."""


@dataclass(frozen=True)
class PositionRule:
    """Where an event stands in the source's log."""

    fields: tuple[str, ...]
    """Members of ``source`` that position and transaction are made of."""
    commit: str
    """SQL over ``source``: the transaction's place, NULL when it is missing."""
    change: str
    """SQL over ``source``: the change's place in the transaction."""
    serial: str = "0"
    """SQL over ``source``: the event's place in the change."""
    spelling: Spelling | None = None
    """None where people write it as a number."""
    goes_back: bool = True
    """Whether a restore, a reset or a failover may begin the positions at a lower place again, which is another epoch of the log. Else an
    event that stands below is late."""
    is_offset: bool = False
    """Whether the commit is the Kafka offset: it begins at 0 again in each life of a topic, and compares with no other topic's."""
    is_shared_by_rows: bool = False
    """Whether several rows may be created at one position: then what the connector wrote tells the events apart."""


@dataclass(frozen=True)
class Transactions:
    """What tells transactions apart."""

    identity: str = "CAST(NULL AS STRING)"
    """SQL over ``source``: text that only one transaction has; NULL where nothing names it."""
    share_commit: bool = True
    """Whether the events of a transaction share their commit's place; else only the identity shows that they belong together."""


@dataclass(frozen=True)
class Snapshots:
    """What the reads of a snapshot carry."""

    are_marked: bool = True
    """Whether a read carries ``source.snapshot``."""
    initial: str = ""
    """SQL over ``source`` of a full snapshot's read: whether only a connector's initial snapshot writes it so, never a blocking one. Empty
    where reads do not show it."""
    initial_needs: str = ""
    """Member of ``source``, the transaction's identity, without which in the streamed events ``initial`` proves nothing. Empty for none."""


@dataclass(frozen=True)
class Images:
    """What the images of an event carry."""

    before_is_whole: bool = False
    """Whether an update's image before may hold a large value that its image after leaves out."""
    names_may_change: bool = True
    """Whether a renamed column may be found by its older name."""


@dataclass(frozen=True)
class Types:
    """The Connect types that the connector spells its own way, by the name of a rule of ``pipeline/decode/types/connect_types.py``."""

    own: Mapping[str, str] = field(default_factory=dict)
    """By semantic type, in this connector's events only."""
    by_ending: Mapping[str, str] = field(default_factory=dict)
    """By the last three words of a semantic type that only this connector writes."""


@dataclass(frozen=True)
class Flattened:
    """By what a record that ``ExtractNewRecordState`` flattened shows its connector, where it does not name it."""

    fields: tuple[str, ...]
    """Members of ``source`` of which it carries one."""
    pattern: str = ""
    """Regular expression that one of their values must match; empty for any value. It separates connectors with the same fields."""
    may_be_anothers: bool = False
    """Whether other connectors write the fields too: theirs are looked for first."""


@dataclass(frozen=True)
class Cut:
    """How an END record's ``id`` shows where its transaction ended; without it ENDs stand in the order of their time."""

    pattern: re.Pattern[str]
    """Matches such an ``id`` as a whole; group ``key`` is what all records of the transaction share, group ``place`` its position."""
    read: Callable[[str], int]
    """From the text of the group ``place`` to the number as which a commit position is compared."""


@dataclass(frozen=True)
class Catalogue:
    """How the database's catalogue describes columns, and what the connector makes of them."""

    queries: Queries
    column_of: Callable[[Sequence[Any]], CatalogueColumn]
    """From a row of ``queries.columns``."""
    field_of: Rule
    settings: Mapping[str, tuple[str, ...]]
    """By property of the connector's configuration that changes how columns are spelled: its values, the default first."""
    connection_type: str
    """Airflow's type of a connection to such a database alone."""
    provider: str
    """Package of the connection type."""
    placeholder: str = ""
    """How the driver wants parameters, where its hook does not name it; ``:`` for numbered ones."""
    words: tuple[str, ...] = ()
    """What a JDBC URL or an ODBC driver's name has of the database, beside the connector's names."""
    name_query: str = ""
    """Of a database that several names are possible for: the SQL whose value holds the name, if it is not the first."""


@dataclass(frozen=True)
class SchemaChanges:
    """What the connector's schema-change topic shows of column types, whose values carry no schema.

    ``pipeline/decode/types/native_types.py`` reads it.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    """The configuration that is assumed, where it is not the default: for these the values show themselves how they are spelled."""
    texts: tuple[str, ...] = ()
    """Types that are texts in bare JSON, whatever a schema would say."""
    unclear_with_length: tuple[str, ...] = ()
    """Beginnings of types that a length in the definition may make another type."""
    length_is_digits: tuple[str, ...] = ()
    """Types whose length is the digits of the second."""
    fixed_digits: Mapping[str, int] = field(default_factory=dict)
    """Digits of the second, by type that takes no length."""
    seconds: Mapping[str, int] = field(default_factory=dict)
    """By type: how far from zero its times go."""


@dataclass(frozen=True)
class Values:
    """How a value is recognised and read, where it is not Debezium's envelope of a row."""

    shape: str = ENVELOPE_OF_A_ROW
    """What makes an envelope of a row of it (``pipeline/decode/value_shapes.py``)."""
    members: tuple[str, ...] = ()
    """Members, beside Debezium's, that ``recognised`` and ``kind`` ask for."""
    recognised: Mapping[str, str] = field(default_factory=dict)
    """By name: SQL over ``payload``, true for the connector's values; empty where ``source.connector`` names it."""
    kind: str = ""
    """SQL over ``payload``: what such a value is, an operation code or a :class:`~airflow_cdc.model.archive.survey.RecordKind`; NULL for
    others."""
    operation: str = ""
    """Member, in place of ``op``, that holds the operation."""
    image: str = ""
    """Member, in place of ``after``, that holds the row after the event."""
    key: str = ""
    """Member that holds the row's key, because records have none."""
    columns: tuple[str, ...] = ()
    """The columns of every row, the first is the key; empty where each table has its own."""
    null_key_means_no_key: bool = True
    """Whether a record whose key is null is of a table without a key."""


@dataclass(frozen=True, eq=False)
class Connector:
    """What is known of a connector."""

    names: tuple[str, ...]
    """What ``source.connector`` calls it; the first is taken for records that do not name theirs."""
    title: str
    """The database's name, for people."""
    position: PositionRule
    transactions: Transactions = Transactions()
    snapshots: Snapshots = Snapshots()
    images: Images = Images()
    types: Types = Types()
    topic: tuple[str, ...] = ("db", "schema", "table")
    """Members of ``source`` that the name of a table's topic has behind the prefix."""
    package: str = ""
    """The connector's word in the names of its Connect schemas, where it is not its name."""
    flattened: Flattened | None = None
    """None where flattened records are not read."""
    cut: Cut | None = None
    catalogue: Catalogue | None = None
    """None where no catalogue can be read."""
    schema_changes: SchemaChanges | None = None
    """None where it writes no schema-change topic, or what its types mean is not known."""
    values: Values = Values()

    @property
    def documents(self) -> bool:
        """Whether the rows are documents as JSON text, of which an update may carry only what changed."""
        return self.values.shape == ENVELOPE_OF_A_DOCUMENT

    @property
    def commit_tells_transaction(self) -> bool:
        """Whether the events of a transaction share their commit's place."""
        return self.transactions.share_commit
