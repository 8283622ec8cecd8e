"""Lakes that need no Spark: Delta tables with our properties, written file by file, and the state of their flows."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.places import quarantine_uri
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.state.microbatch import Microbatch, PlanPosition
from tests.support.surveys import ARCHIVE, FS, archived, shape

FLOW = "server1.testDB.dbo.customers"
POSITION = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("commit", "decimal(38,0)"), ("change", "decimal(38,0)"), ("serial", "long"))
    ],
}
QUARANTINE = {
    **dict.fromkeys(("microbatch", "offset", "line"), "long"),
    **dict.fromkeys(("reason", "detail", "topic", "file", "raw", "raw_key"), "string"),
    "partition": "integer",
}
_QUARANTINE_ORDER = ("microbatch", "reason", "detail", "topic", "partition", "offset", "file", "line", "raw", "raw_key")
_IDENTIFIERS = count(1)


_OF_WRITERS_ALONE = {"appendOnly", "clustering", "inCommitTimestamp", "invariants", "rowTracking"}


def field(name: str, kind: Any, physical: str | None = None) -> dict[str, Any]:
    """Return a column of a Delta schema.

    :param physical: its name in the files; None: the same, in a table without column mapping.
    """
    mapping = "delta.columnMapping"
    mapped = {f"{mapping}.physicalName": physical, f"{mapping}.id": next(_IDENTIFIERS)} if physical else {}
    return {"name": name, "type": kind, "nullable": True, "metadata": mapped}


def write_table(
    folder: Path,
    fields: Sequence[Mapping[str, Any]],
    files: Iterable[pa.Table],
    *,
    properties: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    deleted: Mapping[int, Sequence[int]] | None = None,
) -> Path:
    """Write a Delta table; instants are INT96 in its files, as Spark writes them.

    :param features: Delta features that the table requires.
    :param deleted: by file: indexes of rows that its deletion vector deletes.
    """
    (folder / "_delta_log").mkdir(parents=True)
    adds = []
    for number, rows in enumerate(files):
        path = folder / f"part-{number}.parquet"
        pq.write_table(rows, path, use_deprecated_int96_timestamps=True)
        add = {"path": path.name, "partitionValues": {}, "size": path.stat().st_size, "modificationTime": 0, "dataChange": True}
        vector = {"deletionVector": _vector((deleted or {})[number])} if number in (deleted or {}) else {}
        adds.append({"add": {**add, "stats": json.dumps({"numRecords": rows.num_rows}), **vector}})
    of_readers = [feature for feature in features if feature not in _OF_WRITERS_ALONE]
    reader = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": of_readers, "writerFeatures": list(features)}
    schema = json.dumps({"type": "struct", "fields": list(fields)})
    table = {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema, "partitionColumns": []}
    actions = [
        {"protocol": reader if features else {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {**table, "configuration": dict(properties or {})}},
        *adds,
    ]
    (folder / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    return folder


def our_properties(keys: Sequence[str], mode: TableMode = TableMode.CURRENT, **more: str) -> dict[str, str]:
    """Return the properties of a target table."""
    return {"airflow_cdc.keys": json.dumps(list(keys)), "airflow_cdc.mode": mode.value, **more}


def write_flow(
    lake: Path, flow: str = FLOW, *, microbatches: int = 1, through: Position | None = None, connector: str = "sqlserver"
) -> FlowState:
    """Write the state of a flow whose table is in its usual place."""
    state = FlowState(FS, str(lake), flow)
    for number in range(1, microbatches + 1):
        path = f"{number}.jsonl"
        shapes = (shape(path, flow),) if connector == "sqlserver" else ()
        intent = Microbatch(flow, number, ARCHIVE, (archived(path),), PlanPosition(1, number), shapes)
        assert state.write_intent(intent)
        report = BatchReport(
            flow,
            number,
            1,
            9,
            events=EventCounts(read=3, merged=2, rejected=1),
            rows=RowCounts(inserted=2),
            applied_through={"0": through or Position(number, number, 1)},
            table_version=0,
            merge_plan="merge",
            seconds=1.25,
        )
        state.write_commit(report, f"{lake}/{flow}", intent.digest)
    return state


def write_quarantine(lake: Path, records: Sequence[Mapping[str, Any]], flow: str = FLOW) -> None:
    """Write a flow's quarantine, a record a file, in the given order."""
    fields = [field(name, QUARANTINE[name]) for name in _QUARANTINE_ORDER]
    kinds = {"long": pa.int64(), "integer": pa.int32(), "string": pa.string()}
    schema = pa.schema([pa.field(name, kinds[QUARANTINE[name]]) for name in _QUARANTINE_ORDER])
    files = [pa.Table.from_pylist([dict(record)], schema=schema) for record in records]
    write_table(Path(quarantine_uri(str(lake), flow)), fields, files)


def _vector(rows: Sequence[int]) -> dict[str, Any]:
    """Return a deletion vector in Delta's inline form: one bitmap with one container of rows below 65,536."""
    container = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + b"".join(struct.pack("<H", row) for row in rows)
    bitmaps = struct.pack("<IQI", 1681511377, 1, 0) + container
    return {"storageType": "i", "pathOrInlineDv": _z85(bitmaps), "sizeInBytes": len(bitmaps), "cardinality": len(rows)}


_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _z85(content: bytes) -> str:
    padded = content + b"\0" * (-len(content) % 4)
    numbers = (int.from_bytes(padded[start : start + 4], "big") for start in range(0, len(padded), 4))
    return "".join(_DIGITS[number // 85**power % 85] for number in numbers for power in (4, 3, 2, 1, 0))
