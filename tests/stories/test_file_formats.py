"""The same records in files of every format give the same table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, sqlserver, tombstone, write_records, write_sink_file
from tests.support.tables import read_quarantine, read_rows

Record = dict[str, Any]


def story() -> list[Record]:
    """Return the events of ten rows: half of them change, one moves away and comes back."""
    rows = [sqlserver("c", commit=number, after={"id": number, "v": f'ü "{number}" [,', "f": number + 0.5}) for number in range(1, 11)]
    changes = [sqlserver("u", commit=number + 20, after={"id": number, "v": None, "f": 1e300}) for number in range(1, 6)]
    gone = sqlserver("d", commit=30, before={"id": 3, "v": None, "f": 1e300})
    back = sqlserver("c", commit=31, after={"id": 3, "v": "back", "f": 0.1})
    return numbered([*rows, *changes, gone, tombstone({"id": 3}), back])


def write_compressed(path: Path, text: str, codec: str) -> None:
    with pyarrow.CompressedOutputStream(str(path), codec) as file:
        file.write(text.encode())


def table(spark: SparkSession, lake: Path) -> list[dict[str, Any]]:
    """Return the table's rows without the columns about microbatches."""
    rows = read_rows(spark, str(lake), TOPIC).rows
    return [{name: value for name, value in row.items() if name != "__cdc_microbatch"} for row in rows]


def test_compressed_lines_and_arrays_give_the_table_of_plain_lines(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    events = story()
    write_records(archive / "all.jsonl", events)
    apply(archive, lake)

    other = archive.parent / "other"
    other.mkdir()
    for name, codec, part in (("a.jsonl.zst", "zstd", events[:3]), ("b.jsonl.bz2", "bz2", events[3:6])):
        write_compressed(other / name, "".join(json.dumps(item) + "\n" for item in part), codec)
    (other / "c.json").write_text(json.dumps(events[6:9]))
    (other / "d.json").write_text("\n" + json.dumps(events[9:12], indent=2, ensure_ascii=False) + "\n")
    write_compressed(other / "e.json.gz", "[\n" + ",\n".join(json.dumps(item) for item in events[12:15]) + "\n]", "gzip")
    write_compressed(other / "f.json.zst", json.dumps(events[15:]), "zstd")
    (flow,) = apply(other, lake.parent / "other_lake").flows

    assert (flow.events.read, flow.events.tombstones, flow.events.rejected) == (len(events), 1, 0)
    assert table(spark, lake.parent / "other_lake") == table(spark, lake)
    assert flow.batches[0].offsets.missing == 0


def test_an_array_of_values_has_an_array_of_keys_beside_it(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    events = [item for item in story() if item["value"]]
    path = write_sink_file(archive, events, keys=True)
    for written in (path, path.with_name(path.name.replace(".json", ".keys.json"))):
        written.write_text("[" + ",".join(written.read_text().splitlines()) + "]")
    (flow,) = apply(archive, lake).flows

    assert (flow.events.read, flow.events.rejected) == (len(events), 0)
    assert {row["id"] for row in table(spark, lake)} == set(range(1, 11))


def test_what_is_no_whole_array_is_rejected_and_takes_no_line_with_it(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    first, second, third, *_ = (json.dumps(item) for item in story())
    (archive / f"{TOPIC}+0+1.json").write_text(f"[{first}, {second}")
    (archive / f"{TOPIC}+0+2.json").write_text(f"[{first}] [{second}]")
    # Read as lines again: the others are good.
    (archive / "lines.jsonl").write_text(f"[broken\n{second}\n{third}\n")
    (archive / "empty.json").write_text("[]")
    (flow,) = apply(archive, lake).flows

    assert (flow.events.read, flow.events.rejected) == (5, 3)
    assert {row["id"] for row in table(spark, lake)} == {2, 3}
    raw = {record["raw"] for record in read_quarantine(spark, str(lake))}
    assert raw == {"[broken", f"[{first}, {second}", f"[{first}] [{second}]"}


@pytest.mark.deep
@pytest.mark.parametrize("form", ["avro", "parquet"])
def test_a_text_that_is_no_utf_8_is_set_aside_in_typed_files_too(
    form: str, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    """Spelled as JSON it became U+FFFD, and was merged: a value that the source never had."""
    texts = ["'good'", "CAST(X'4AC328' AS STRING)", "'\ufffd'"]
    after = [
        f"named_struct('id', {number}, 'name', {name}, 'tags', array(map('tag', {tag})))"
        for number, (name, tag) in enumerate([*((text, "'x'") for text in texts), ("'in a tag'", texts[1])], 1)
    ]
    source = "named_struct('connector', 'sqlserver', 'commit_lsn', '{0}', 'change_lsn', '{0}', 'event_serial_no', 1L)"
    place = "00000027:00000001:000{}"
    events = [f"SELECT {row} AS after, {source.format(place.format(number))} AS source, 'c' AS op" for number, row in enumerate(after, 1)]
    frame = spark.sql(" UNION ALL ".join(events)).coalesce(1)
    frame.write.format(form).save(str(archive.parent / "written"))
    (archive / f"{TOPIC}+0+0000000000.{form}").write_bytes(next((archive.parent / "written").glob(f"*.{form}")).read_bytes())

    (flow,) = apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, keys=("id",))}).flows

    assert (flow.events.read, flow.events.merged, flow.batches[0].rejects) == (4, 2, {"invalid_utf8": 2})
    assert [(row["id"], row["name"]) for row in read_rows(spark, str(lake), TOPIC).rows] == [(1, "good"), (3, "\ufffd")]
    assert any('"name":"J\ufffd(' in record["raw"] for record in read_quarantine(spark, str(lake)))
