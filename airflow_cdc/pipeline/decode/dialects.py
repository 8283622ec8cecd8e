"""Dialects: what each connector's source block says about an event's position. One entry a connector.

Positions are numbers compared as numbers (docs/explanation/exactness.md#position; :class:`airflow_cdc.model.position.Position`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_cdc.model.errors import UnsupportedConnectorError
from airflow_cdc.pipeline.decode import huawei_cdl, mongodb

NUMBER = "DECIMAL(38,0)"


@dataclass(frozen=True)
class Dialect:
    """How one connector orders its events."""

    source_fields: tuple[str, ...]
    """Members of ``source`` that the position is made of; all are read as text."""
    commit: str
    """SQL over ``source``: the transaction's place, NULL when it is missing."""
    change: str
    """SQL over ``source``: the change's place in the transaction."""
    serial: str
    """SQL over ``source``: the event's place in the change."""
    transaction: str
    """SQL over ``source``: text that tells transactions apart."""
    huawei_cdl: bool = False
    """Whether the values are spelled as Huawei CDL spells them."""
    offset_positions: bool = False
    """Whether a commit position is the Kafka offset, which begins at 0 again in each life of the topic."""
    documents: bool = False
    """Whether the rows are documents as JSON text, of which an update may tell only what changed (MongoDB)."""
    commit_tells_transaction: bool = True
    """Whether the events of a transaction share their commit's place; else only the text tells that they belong together."""
    initial_read: str = "false"
    """SQL over ``source`` of a full snapshot's read: whether only a connector's initial snapshot writes it so, never a blocking one."""
    names_gtids: bool = False
    """Whether ``initial_read`` proves something only where the streamed events carry a GTID (``transaction``)."""
    clock_positions: bool = False
    """Whether positions are the source's own time: then a log does not go back, and what stands below is late."""
    tells_before: bool = False
    """Whether an update's image before may hold a large value that its image after leaves out."""

    @property
    def knows_initial(self) -> bool:
        """Whether reads tell an initial snapshot from others."""
        return self.initial_read != "false"


def _lsn(field: str) -> str:
    """SQL of a SQL Server LSN ``vlf:block:slot`` as one number, NULL for any other text."""

    def part(number: int, weight: int) -> str:
        digits = f"conv(split_part(source.{field}, ':', {number}), 16, 10)"
        return f"CAST({digits} AS {NUMBER}) * {weight}BD"

    number = f"{part(1, 2**48)} + {part(2, 2**16)} + {part(3, 1)}"
    # As nearly all are spelled, and fit into 64 bits: to take all of them apart would cost a tenth of a microbatch.
    digits = f"concat(substr(source.{field}, 5, 4), substr(source.{field}, 10, 8), substr(source.{field}, 19, 4))"
    # unhex is NULL for any other character. A pattern would cost twice what all the rest of it does.
    is_usual = (
        f"(octet_length(source.{field}) = 22 AND startswith(source.{field}, '0000') AND substr(source.{field}, 9, 1) = ':'"
        f" AND substr(source.{field}, 18, 1) = ':' AND unhex({digits}) IS NOT NULL)"
    )
    is_any = f"source.{field} RLIKE '^[0-9A-Fa-f]{{1,8}}:[0-9A-Fa-f]{{1,8}}:[0-9A-Fa-f]{{1,4}}$'"
    return f"CASE WHEN {is_usual} THEN CAST(conv({digits}, 16, 10) AS {NUMBER}) WHEN {is_any} THEN CAST({number} AS {NUMBER}) END"


def _sequence(place: int) -> str:
    number = f"try_cast(get(from_json(source.sequence, 'ARRAY<STRING>'), {place}) AS {NUMBER})"
    # As all connectors spell it: to parse it as JSON costs as much as to parse a whole line.
    usual = f"trim(BOTH '[]\"' FROM split_part(source.sequence, ',', {place + 1}))"
    return rf"""if(source.sequence RLIKE r'^\[(null|"\d{{1,38}}"),"\d{{1,38}}"\]$', CAST(nullif({usual}, 'null') AS {NUMBER}), {number})"""


SQLSERVER = Dialect(
    source_fields=("commit_lsn", "change_lsn", "event_serial_no"),
    commit=_lsn("commit_lsn"),
    change=_lsn("change_lsn"),
    # A number in the schema, a string in the documentation's examples; 1 where the connector leaves it out.
    serial="coalesce(try_cast(source.event_serial_no AS BIGINT), 1)",
    transaction="source.commit_lsn",
)

POSTGRESQL = Dialect(
    # lsn alone is not monotone: transactions interleave. sequence is [last commit, lsn]; the first event has no last commit.
    source_fields=("sequence", "lsn", "txId"),
    commit=f"coalesce({_sequence(0)}, {_sequence(1)})",
    change=_sequence(1),
    serial="0",
    transaction="source.txId",
    # Without an exception in all captures: docs/sources/postgresql.md#initial-snapshots. A blocking snapshot's reads have both numbers.
    initial_read="coalesce(source.sequence LIKE '[null,%', false)",
    # REPLICA IDENTITY FULL writes the old row whole.
    tells_before=True,
)

# The number behind the last dot of mariadb-bin.000003: as text .1000000 stands before .999999. gtid is no order: it tells domain and
# server too. A file of 2^64 bytes does not exist, so file and place make one number, as a snapshot read needs it.
_BINLOG_FILE = rf"try_cast(regexp_extract(source.file, r'\.(\d+)\s*$', 1) AS {NUMBER})"

MYSQL = Dialect(
    source_fields=("file", "pos", "row", "gtid"),
    commit=f"CAST({_BINLOG_FILE} * {2**64}BD + try_cast(source.pos AS {NUMBER}) AS {NUMBER})",
    # One event of the log holds the rows of one statement.
    change=f"coalesce(try_cast(source.row AS {NUMBER}), CAST(0 AS {NUMBER}))",
    serial="0",
    # Without GTIDs nothing tells transactions apart; nothing needs to: a key is free before another row takes it.
    transaction="source.gtid",
    # Where GTIDs are on; the reads of a blocking snapshot carry the one at which the stream paused.
    initial_read="source.gtid IS NULL",
    names_gtids=True,
)


def _redo_record() -> str:
    """SQL of LogMiner's ``rs_id`` ``0x<log sequence>.<block>.<offset>`` (hexadecimal) and ``ssn`` as one number, NULL where it is none."""

    def part(number: int, bits: int) -> str:
        digits = f"conv(split_part(substr(trim(source.rs_id), 3), '.', {number}), 16, 10)"
        return f"CAST({digits} AS {NUMBER}) * {2**bits}BD"

    ssn = f"coalesce(try_cast(source.ssn AS {NUMBER}), CAST(0 AS {NUMBER}))"
    record = f"{part(1, 80)} + {part(2, 48)} + {part(3, 32)} + {ssn}"
    spelled = r"^\s*0x[0-9A-Fa-f]{1,8}\.[0-9A-Fa-f]{1,8}\.[0-9A-Fa-f]{1,4}\s*$"
    return f"CASE WHEN source.rs_id RLIKE r'{spelled}' THEN CAST({record} AS {NUMBER}) END"


ORACLE = Dialect(
    source_fields=("commit_scn", "scn", "rs_id", "ssn", "txId"),
    # A snapshot read has no commit; its scn is that of the whole snapshot.
    commit=f"coalesce(try_cast(source.commit_scn AS {NUMBER}), try_cast(source.scn AS {NUMBER}))",
    # Changes of a transaction share an scn; their redo records do not, and rise with it.
    change=f"coalesce({_redo_record()}, try_cast(source.scn AS {NUMBER}))",
    serial="0",
    transaction="source.txId",
)


def _db2_lsn(field: str) -> str:
    """SQL of Db2's LSN as Debezium prints it, ``xxxxxxxx:xxxxxxxx:xxxxxxxxxxxxxxxx``, as one number, NULL for any other text."""

    def part(number: int) -> str:
        return f"CAST(conv(split_part(source.{field}, ':', {number}), 16, 10) AS {NUMBER})"

    # 16 bytes may be more than 38 digits: such a log would have to have counted for longer than logs do, and is no position here.
    high = f"try_add(try_multiply({part(1)}, {2**96}BD), {part(2)} * {2**64}BD)"
    number = f"try_cast(try_add({high}, {part(3)}) AS {NUMBER})"
    return f"CASE WHEN source.{field} RLIKE '^[0-9A-Fa-f]{{1,8}}:[0-9A-Fa-f]{{1,8}}:[0-9A-Fa-f]{{1,16}}$' THEN {number} END"


# Like SQL Server's, which its connector began as; a key change has no serial numbers, its delete and create stand at one place.
DB2 = Dialect(
    source_fields=("commit_lsn", "change_lsn"),
    commit=_db2_lsn("commit_lsn"),
    change=_db2_lsn("change_lsn"),
    serial="0",
    transaction="source.commit_lsn",
)

HUAWEI_CDL = Dialect(
    source_fields=("lsn", "txId"),
    commit=huawei_cdl.COMMIT,
    change=huawei_cdl.CHANGE,
    serial="source.serial",
    transaction="source.txId",
    huawei_cdl=True,
    offset_positions=True,
    clock_positions=True,
    commit_tells_transaction=False,
    tells_before=True,
)

MONGODB = Dialect(
    source_fields=("ord", "tord", "txnNumber", "stxnid"),
    commit=mongodb.COMMIT,
    change="CAST(0 AS DECIMAL(38,0))",
    serial=mongodb.SERIAL,
    # A key is free before another document takes it: nothing needs to tell transactions apart.
    transaction="CAST(NULL AS STRING)",
    documents=True,
    clock_positions=True,
)

DIALECTS: Mapping[str, Dialect] = {
    "sqlserver": SQLSERVER,
    "postgresql": POSTGRESQL,
    "mysql": MYSQL,
    "mariadb": MYSQL,
    "oracle": ORACLE,
    "db2": DB2,
    mongodb.CONNECTOR: MONGODB,
    **dict.fromkeys(huawei_cdl.CONNECTORS, HUAWEI_CDL),
}


def dialect_of(connectors: set[str], flow: str) -> Dialect:
    """Return the dialect of a topic's events; what names no known connector beside some that do is for the quarantine.

    :raises UnsupportedConnectorError: for connectors without dialect, or for several in one topic.
    """
    known = connectors & DIALECTS.keys()
    # Of a record whose CDL marks are lost only the source's connector is left.
    known = known & set(huawei_cdl.CONNECTORS) or known
    if len(known) == 1:
        return DIALECTS[known.pop()]
    raise UnsupportedConnectorError(
        f"Flow {flow}: the events come from {sorted(connectors) or 'no connector that they name'}; known are {sorted(DIALECTS)}.",
        next_step="Leave the topic out with --table, or ask for the dialect.",
    )
