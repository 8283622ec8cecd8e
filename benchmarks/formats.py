"""The same events archived in four ways: what does it cost ours to read them?"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import size
from benchmarks.archives import Traffic, kept
from benchmarks.base import Base
from benchmarks.contestants.contestant import Contestant, Task, struct_of
from benchmarks.contestants.ours import Ours
from benchmarks.measure import Result, in_turn
from benchmarks.merges import ROUNDS, Race
from benchmarks.sequence import MIXED, Keys
from benchmarks.shapes import ACCOUNTS, KEY, Shape

EVENTS, ROWS = 100_000, 1_000_000
_CONNECT = {"BIGINT": "int64", "DOUBLE": "double", "BOOLEAN": "boolean", "STRING": "string", "INT": "int32"}
_SOURCE = {
    "version": "STRING",
    "connector": "STRING",
    "name": "STRING",
    "ts_ms": "BIGINT",
    "snapshot": "STRING",
    "db": "STRING",
    "sequence": "STRING",
    "ts_us": "BIGINT",
    "ts_ns": "BIGINT",
    "schema": "STRING",
    "table": "STRING",
    "change_lsn": "STRING",
    "commit_lsn": "STRING",
    "event_serial_no": "BIGINT",
}


def run(spark: SparkSession, folder: Path, *, only: Sequence[str] = (), rounds: int = ROUNDS) -> Result:
    """Let ours merge the events as each format holds them, in turn."""
    cache = folder.parent / "cache"
    base = Base(spark, cache, ACCOUNTS, size.scaled(ROWS))
    traffic = Traffic(ACCOUNTS, size.scaled(EVENTS), Keys(base.rows), MIXED)
    bare = traffic.files(cache / "events")
    files = {
        "bare JSON": bare,
        "schema and payload": kept(cache / "events", f"schema {traffic}", partial(_write_enveloped, bare, ACCOUNTS)),
        "Avro": kept(cache / "events", f"avro {traffic}", partial(_write_typed, spark, bare, ACCOUNTS, "avro")),
        "Parquet": kept(cache / "events", f"parquet {traffic}", partial(_write_typed, spark, bare, ACCOUNTS, "parquet")),
    }
    contestants: dict[str, Contestant] = {
        name: Ours(Task(base, paths), folder / name) for name, paths in files.items() if not only or name in only
    }
    race = Race(spark, contestants, turns=rounds + 1)
    result = Result(
        "formats", f"{size.scaled(EVENTS):,} events spread over {base.rows:,} rows, archived in four ways", next(iter(contestants))
    )
    result.taken = in_turn(race.works, rounds=rounds, before=race.before, after=race.after)
    megabytes = {name: round(sum(path.stat().st_size for path in paths) / 1e6, 1) for name, paths in files.items()}
    result.facts = {"rows and hash": race.found, "MB archived": megabytes, **race.facts()}
    result.void_rows = race.differing()
    return result


def _archived(shape: Shape) -> dict[str, str]:
    """Return the columns as SQL types of what Debezium writes: what the flow has to declare is text."""
    return {name: "STRING" if name in shape.declared else kind for name, kind in shape.types.items()}


def _write_enveloped(files: Sequence[Path], shape: Shape, folder: Path) -> None:
    """Write records of bare JSON with the schemas that Kafka Connect's converter puts around key and value."""
    key = json.dumps({"type": "struct", "fields": _fields({KEY: "BIGINT"}), "optional": False, "name": "bench.Key"}, separators=(",", ":"))
    row = {"type": "struct", "fields": _fields(_archived(shape)), "optional": True, "name": "bench.Value"}
    source = {"type": "struct", "fields": _fields(_SOURCE), "optional": False, "name": "io.debezium.connector.sqlserver.Source"}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, {**source, "field": "source"}]
    fields += _fields({"op": "STRING", "ts_ms": "BIGINT", "ts_us": "BIGINT", "ts_ns": "BIGINT"})
    value = json.dumps({"type": "struct", "fields": fields, "optional": False, "name": "bench.Envelope"}, separators=(",", ":"))
    for file in files:
        place = folder / file.parent.name / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        with file.open(encoding="utf-8") as lines, place.open("w", encoding="utf-8") as written:
            for line in lines:
                head, _, rest = line.rstrip()[:-1].partition(',"key":')
                key_text, _, value_text = rest.partition(',"value":')
                value_of_record = "null" if value_text == "null" else f'{{"schema":{value},"payload":{value_text}}}'
                written.write(f'{head},"key":{{"schema":{key},"payload":{key_text}}},"value":{value_of_record}}}\n')


def _fields(types: dict[str, str]) -> list[dict[str, object]]:
    return [{"type": _CONNECT[kind], "optional": name != KEY, "field": name} for name, kind in types.items()]


def _write_typed(spark: SparkSession, files: Sequence[Path], shape: Shape, form: str, folder: Path) -> None:
    """Write records of bare JSON as files of a format of Spark's, one a partition."""
    row = struct_of(_archived(shape))
    value = f"STRUCT<before: {row}, after: {row}, source: {struct_of(_SOURCE)}, op: STRING, ts_ms: BIGINT>"
    record = f"topic STRING, partition INT, offset BIGINT, key STRUCT<{KEY}: BIGINT>, value {value}"
    for file in files:
        place = folder / file.parent.name / file.with_suffix(f".{form}").name
        scratch = folder / "scratch"
        in_order = spark.read.schema(record).json(str(file.absolute())).coalesce(1).sortWithinPartitions("offset")
        in_order.write.format(form).save(str(scratch.absolute()))
        place.parent.mkdir(parents=True, exist_ok=True)
        next(scratch.glob(f"part-*.{form}")).rename(place)
        shutil.rmtree(scratch)
