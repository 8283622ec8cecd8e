"""Write change events as the connectors spell them; only what the reference documents and captures show."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_cdc.model.connectors.sqlserver import format_sqlserver_lsn

Record = dict[str, Any]
Row = Mapping[str, Any]

TOPIC = "server1.testDB.dbo.customers"


def lsn(number: int) -> str:
    """Return the number as a SQL Server LSN; block and slot both take part, so that neither may be left out."""
    return format_sqlserver_lsn((0x27 << 48) | (number // 16 << 16) | number % 16)


def sqlserver(
    op: str,
    *,
    commit: int,
    change: int | None = None,
    serial: int | str | None = 1,
    before: Row | None = None,
    after: Row | None = None,
    key: Row | None = None,
    topic: str = TOPIC,
    offset: int | None = None,
    partition: int = 0,
) -> Record:
    """Return a whole Kafka record with a bare SQL Server envelope.

    ``change`` defaults to ``commit``; a snapshot read has neither change nor serial.
    """
    image = after if after is not None else before
    is_read = op == "r"
    source = {
        "version": "2.1.4.Final",
        "connector": "sqlserver",
        "name": topic.split(".", maxsplit=1)[0],
        "ts_ms": 1_700_000_000_000 + commit,
        "snapshot": "true" if is_read else "false",
        "db": "testDB",
        "schema": "dbo",
        "table": topic.rsplit(".", 1)[-1],
        "change_lsn": None if is_read else lsn(commit if change is None else change),
        "commit_lsn": lsn(commit),
        "event_serial_no": None if is_read else serial,
    }
    value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": source["ts_ms"] + 5, "transaction": None}
    return record(topic, key if key is not None else {"id": image["id"]} if image else None, value, offset, partition)


def postgresql(
    op: str,
    *,
    commit: int | None,
    change: int,
    before: Row | None = None,
    after: Row | None = None,
    key: Row | None = None,
    topic: str = "pg.public.customers",
    offset: int | None = None,
    partition: int = 0,
) -> Record:
    """Return a whole Kafka record with a bare PostgreSQL envelope; ``commit`` is the last commit's LSN."""
    image = after if after is not None else before
    source = {
        "version": "3.5.0.Final",
        "connector": "postgresql",
        "name": topic.split(".", maxsplit=1)[0],
        "ts_ms": 1_700_000_000_000 + change,
        "snapshot": "true" if op == "r" else "false",
        "db": "postgres",
        "sequence": json.dumps([None if commit is None else str(commit), str(change)], separators=(",", ":")),
        "schema": "public",
        "table": topic.rsplit(".", 1)[-1],
        "txId": change,
        "lsn": change,
        "xmin": None,
    }
    value = {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": source["ts_ms"] + 5}
    identity = key if key is not None else ({"id": image["id"]} if image else None)
    return record(topic, identity, value, offset, partition)


def oracle(
    op: str,
    *,
    commit: int | None,
    change: int,
    transaction: str | None = None,
    before: Row | None = None,
    after: Row | None = None,
    **place: Any,
) -> Record:
    """Return a whole Kafka record with a bare Oracle envelope: SCNs are text; a read has no commit; ``place``: topic, partition, key."""
    source = {
        "connector": "oracle",
        "ts_ms": 1_700_000_000_000 + change,
        "schema": "APP",
        "scn": str(change),
        "commit_scn": None if commit is None else str(commit),
        "rs_id": None if op == "r" else f" 0x{change >> 16:06x}.{change >> 4 & 0xFFF:08x}.{change % 16 * 16:04x} ",
        "ssn": 0,
        "redo_thread": 1,
        "user_name": "APP",
        "txId": transaction,
    }
    return _enveloped(op, source, before, after, **place)


def db2(op: str, *, commit: int, change: int, before: Row | None = None, after: Row | None = None, **place: Any) -> Record:
    """Return a whole Kafka record with a bare Db2 envelope; ``place``: topic, partition, key."""

    def lsn_of(number: int) -> str:
        return f"00000027:{number >> 8:08x}:{number % 256 << 40:016x}"

    source = {
        "connector": "db2",
        "ts_ms": 1_700_000_000_000 + commit,
        "db": "TESTDB",
        "schema": "DB2INST1",
        "change_lsn": None if op == "r" else lsn_of(change),
        "commit_lsn": lsn_of(commit),
    }
    return _enveloped(op, source, before, after, **place)


def mariadb(
    op: str, *, position: int, gtid: str | None = None, before: Row | None = None, after: Row | None = None, **place: Any
) -> Record:
    """Return a whole Kafka record with a bare MariaDB envelope; ``position`` is over all binlog files, of a million bytes each."""
    source = {
        "connector": "mariadb",
        "ts_ms": 1_700_000_000_000 + position // 1000 * 1000,
        "db": "shop",
        "server_id": 1,
        "gtid": gtid,
        "file": f"binlog.{position // 10**6 + 999_990:06d}",
        "pos": position % 10**6,
        "row": 0,
        "thread": None,
    }
    return _enveloped(op, source, before, after, **place)


def mongodb(
    op: str,
    key: str,
    *,
    second: int,
    offset: int | None,
    after: str | None = None,
    before: str | None = None,
    updated: str | None = None,
    removed: list[str] | None = None,
    ord_: int = 1,
    transaction: int | None = None,
    topic: str = "mg.shop.orders",
) -> Record:
    """Return a whole Kafka record with a bare MongoDB envelope; documents, ``updated`` and the key are texts of extended JSON."""
    time = (1_700_000_000 + second) * 1000
    source = {
        "version": "3.5.0.Final",
        "connector": "mongodb",
        "name": topic.split(".", maxsplit=1)[0],
        "ts_ms": time,
        "snapshot": "true" if op == "r" else "false",
        "db": "shop",
        "collection": topic.rsplit(".", 1)[-1],
        "ord": ord_,
        "lsid": None if transaction is None else '{"id": "5"}',
        "txnNumber": transaction,
        "wallTime": None if op == "r" else time,
    }
    carries_change = updated is not None or removed is not None
    description = {"removedFields": removed, "updatedFields": updated or "{}", "truncatedArrays": None} if carries_change else None
    value = {"before": before, "after": after, "updateDescription": description, "source": source, "op": op, "ts_ms": time + 5}
    return record(topic, {"id": key}, value, offset)


def cdl_json(
    op: str,
    *,
    change: int,
    transaction: int,
    key: Row,
    topic: str,
    partition: int = 0,
    before: Row | None = None,
    after: Row | None = None,
    lobs: Iterable[str] = (),
) -> Record:
    """Return a whole Kafka record with a bare value of Huawei CDL JSON 1.0, the key in it; ``lobs``: columns of large objects."""
    value = {
        "DATA_STORE": "POSTGRESQL",
        "SEG_OWNER": "public",
        "TABLE_NAME": topic.rsplit(".", 1)[-1],
        "TIMESTAMP": 1_700_000_000_000 + change,
        "OPERATION": {"r": "INSERT", "c": "INSERT", "u": "UPDATE", "d": "DELETE"}[op],
        "LOB_COLUMNS": ",".join(lobs) or None,
        "transaction": {"properties": [{"name": "lsn", "value": change}, {"name": "txId", "value": transaction}]},
        "unique": key,
        "data": after,
        "before": before,
        "message_version": "1.0",
        "message_type": "0",
    }
    return record(topic, None, value, None, partition)


def _enveloped(op: str, source: dict[str, Any], before: Row | None, after: Row | None, *, topic: str, partition: int, key: Row) -> Record:
    fixed = {"version": "3.5.0.Final", "snapshot": "true" if op == "r" else "false"}
    named = {**fixed, "name": topic.split(".", maxsplit=1)[0], "table": topic.rsplit(".", 1)[-1], **source}
    value = {"before": before, "after": after, "source": named, "op": op, "ts_ms": source["ts_ms"] + 5, "transaction": None}
    return record(topic, key, value, None, partition)


def schema_change(
    connector: str,
    identifier: str,
    columns: Mapping[str, tuple[str, int | None, int | None]],
    *,
    prefix: str,
    keys: Iterable[str] = (),
    kind: str = "CREATE",
    offset: int | None = None,
    ddl: str | None = None,
) -> Record:
    """Return a whole Kafka record of a schema-change topic; ``columns``: type name, length and scale by name."""
    table = {
        "defaultCharsetName": None,
        "primaryKeyColumnNames": list(keys),
        "columns": [
            {"name": name, "jdbcType": 0, "typeName": word, "typeExpression": word, "length": length, "scale": scale, "position": place}
            for place, (name, (word, length, scale)) in enumerate(columns.items(), 1)
        ],
    }
    source = {"version": "3.5.0.Final", "connector": connector, "name": prefix, "ts_ms": 1_700_000_000_000}
    changes = [{"type": kind, "id": identifier, "table": table}]
    value = {"source": source, "ts_ms": 1, "databaseName": "shop", "schemaName": None, "ddl": ddl, "tableChanges": changes}
    return record(prefix, {"databaseName": "shop"}, value, offset)


def tombstone(key: Row, *, topic: str = TOPIC, offset: int | None = None, partition: int = 0) -> Record:
    """Return the null-value record that follows a delete."""
    return record(topic, key, None, offset, partition)


def record(topic: str, key: Row | None, value: Row | None, offset: int | None, partition: int = 0) -> Record:
    """Return a whole Kafka record."""
    return {"topic": topic, "partition": partition, "offset": offset, "timestamp": 1, "headers": [], "key": key, "value": value}


def numbered(records: Iterable[Record], first: int = 0) -> list[Record]:
    """Give the records the offsets that they would have in one topic-partition each."""
    next_offset: dict[tuple[str, int], int] = {}
    result = []
    for item in records:
        place = (item["topic"], item["partition"])
        offset = next_offset.get(place, first)
        next_offset[place] = offset + 1
        result.append({**item, "offset": offset})
    return result


def write_records(path: Path, records: Iterable[Record | str]) -> Path:
    """Write whole records as JSON lines, gzip or Zstandard where the name says so; a text goes in as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join((item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)) + "\n" for item in records).encode()
    if path.suffix == ".zst":
        path.write_bytes(pa.compress(lines, codec="zstd", asbytes=True))
    else:
        path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)
    return path


def write_sink_files(root: Path, records: Iterable[Record], *, keys: bool, suffix: str = "") -> None:
    """Write records as a sink does: a file of values for each of three partitions, in a folder of its own."""
    written = list(records)
    for partition in range(3):
        lane = [record for record in written if record["partition"] == partition]
        write_sink_file(root, lane, keys=keys, folders=f"partition={partition}", suffix=suffix)


def write_sink_file(root: Path, records: Iterable[Record], *, keys: bool, folders: str = "", suffix: str = "") -> Path:
    """Write records as a Kafka Connect sink does: values only, tombstones left out, the keys beside them where asked."""
    kept = [item for item in records if item["value"] is not None]
    first = kept[0]
    stem = root / first["topic"] / folders / f"{first['topic']}+{first['partition']}+{first['offset']:010d}"
    path = stem.with_name(f"{stem.name}.json{suffix}")
    write_records(path, [json.dumps(item["value"]) for item in kept])
    if keys:
        write_records(stem.with_name(f"{stem.name}.keys.json{suffix}"), [json.dumps(item["key"]) for item in kept])
    return path
