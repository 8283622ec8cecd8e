"""The native survey gives what Spark's gives, or leaves the file to Spark."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archived_files import ArchivedFile, list_archive
from airflow_cdc.model.columns import FILE
from airflow_cdc.pipeline.native.record_lines import fetch
from airflow_cdc.pipeline.survey import survey_natively as survey
from airflow_cdc.pipeline.survey.survey_files import survey_files
from airflow_cdc.pipeline.survey.survey_natively import survey_natively
from tests.support.events import Record, db2, mariadb, mongodb, oracle, postgresql, record, sqlserver, tombstone, write_records

pytest.importorskip("duckdb")

CAPTURES = Path(__file__).parents[4] / "tests" / "golden" / "captures"
SINKS = sorted(CAPTURES.glob("*/s3"))
"""What a Connect sink wrote: values with companions."""
ARCHIVES = [*sorted(path for path in CAPTURES.glob("*/archive*/*") if path.is_dir()), *SINKS]


def files_of(archive: Path) -> tuple[ArchivedFile, ...]:
    return tuple(list_archive(LocalFileSystem(), str(archive)).files)


def assert_alike(spark: SparkSession, archive: Path) -> list[ArchivedFile]:
    """Compare both surveys of an archive, and return the files that are left to Spark."""
    files = files_of(archive)
    assert survey_files(spark, str(archive), files, natively=True) == survey_files(spark, str(archive), files)
    return survey_natively(str(archive), files)[1]


@pytest.mark.parametrize("archive", SINKS, ids=lambda path: path.parent.name)
def test_a_connect_sink_s_files_are_surveyed_without_spark(archive: Path) -> None:
    files = files_of(archive)
    rows, others = survey_natively(str(archive), files)
    assert (others, {row[FILE] for row in rows}) == ([], {file.path for file in files})
    assert {row["topic"] for row in rows} == {None}


def test_files_are_read_in_parts_that_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first run over more than a gigabyte was surveyed by Spark, at three times the cost."""
    for number in range(5):
        write_records(tmp_path / f"{number}.jsonl", [sqlserver("c", commit=1, after={"id": number}, offset=number)])
    files = files_of(tmp_path)
    whole = survey_natively(str(tmp_path), files)
    parts: list[int] = []

    def counted(archive: str, part: Any, **options: Any) -> Any:
        parts.append(len(part))
        return fetch(archive, part, **options)

    monkeypatch.setattr(survey, "_AT_ONCE", 2 * files[0].text_size)
    monkeypatch.setattr(survey, "fetch", counted)
    assert survey_natively(str(tmp_path), files) == whole
    assert (whole[1], len(whole[0]), parts) == ([], 5, [2, 2, 1])


@pytest.mark.deep
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: f"{path.parent.parent.name}/{path.name}")
def test_of_every_capture_both_surveys_are_equal(archive: Path, spark: SparkSession) -> None:
    assert_alike(spark, archive)


PLACES: dict[Callable[..., Record], dict[str, Any]] = {
    sqlserver: {"commit": 5, "change": 6},
    postgresql: {"commit": 5, "change": 6},
    oracle: {"commit": 5, "change": 6, "transaction": "t"},
    mariadb: {"position": 5, "gtid": "0-1-1"},
    db2: {"commit": 5, "change": 6},
}


def test_documents_need_no_spark(tmp_path: Path, spark: SparkSession) -> None:
    """Their members are no columns."""
    text = '{"_id": {"$oid": "5"}, "naïve ☃": "a \\"b\\""}'
    made = [
        *(mongodb(op, '"k"', second=place, offset=place, after=text) for place, op in enumerate("rcu")),
        mongodb("u", '"k"', second=3, offset=3, updated='{"n": 1}'),
        mongodb("d", '"k"', second=4, offset=4, before=text),
        mongodb("d", '"k"', second=5, offset=5),
        {**tombstone({"id": '"k"'}, topic="mg.shop.orders"), "offset": 6},
    ]
    write_records(tmp_path / "documents.jsonl", made)
    assert assert_alike(spark, tmp_path) == []
    image = {**mongodb("c", '"k"', second=6, offset=7), "topic": "mg.shop.orders"}
    image["value"] = {**image["value"], "after": {"_id": 5}}
    write_records(tmp_path / "no text.jsonl", [image])
    assert [file.path for file in assert_alike(spark, tmp_path)] == ["no text.jsonl"]


def test_plain_events_of_every_relational_connector_need_no_spark(tmp_path: Path, spark: SparkSession) -> None:
    row = {"id": 1, "naïve ☃": 'a "b"', "n": 1.50}
    images = {"c": {"after": row}, "d": {"before": row}, "r": {"after": row}}
    for make, place in PLACES.items():
        made = [make(op, **place, **has, topic=make.__name__, partition=1, key={"id": 1}) for op, has in images.items()]
        numbered = [{**each, "offset": offset} for offset, each in enumerate(made)]
        write_records(tmp_path / f"{make.__name__}.jsonl{'.gz' if make is oracle else ''}", numbered)
    write_records(tmp_path / "gone.jsonl", [{**tombstone({"id": 1}, topic="db2"), "offset": 9}])
    assert assert_alike(spark, tmp_path) == []


def logs_of(rows: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return sorted((row["kind"], row["log"]) for row in rows)


def test_each_log_that_writes_to_a_topic_is_surveyed(tmp_path: Path) -> None:
    """Two databases in one topic are two logs; one connector for SQL Server may capture several databases."""
    made = [make("c", **PLACES[make], after={"id": 1}, topic="t", partition=0, key={"id": 1}) for make in (mariadb, sqlserver)]
    named = [{**each, "offset": place} for place, each in enumerate(made)]
    for record_of, name in zip(named, ("shard.a", "server"), strict=True):
        record_of["value"]["source"]["name"] = name
    write_records(tmp_path / "t.jsonl", [*named, {**tombstone({"id": 1}, topic="t"), "offset": 2}])
    rows, others = survey_natively(str(tmp_path), files_of(tmp_path))
    assert (others, logs_of(rows)) == ([], [("c", "server.testDB"), ("c", "shard.a"), ("tombstone", None)])


def test_both_surveys_name_the_same_logs(tmp_path: Path, spark: SparkSession) -> None:
    for make, place in PLACES.items():
        one = make("c", **place, after={"id": 1}, topic="t", partition=0, key={"id": 1}) | {"offset": 0}
        other = json.loads(json.dumps({**one, "offset": 1}))
        other["value"]["source"] |= {"name": "another", "db": None}
        write_records(tmp_path / f"{make.__name__}.jsonl", [one, other])
    assert assert_alike(spark, tmp_path) == []


PLAIN = json.dumps(postgresql("c", commit=5, change=6, after={"id": 1, "x": 1}, topic="t") | {"offset": 3}, separators=(",", ":"))
ODD = {
    "a schema change": json.dumps(record("t", None, {"databaseName": "d", "ddl": "x", "source": {}}, 4)),
    "a value of another kind": PLAIN.replace('"op":"c"', '"op":"x"'),
    "no offset": PLAIN.replace('"offset":3', '"offset":null'),
    "an offset with an exponent": PLAIN.replace('"offset":3', '"offset":1e3'),
    "a huge offset": PLAIN.replace('"offset":3', '"offset":12345678901234567890123'),
    "no topic": PLAIN.replace('"topic":"t"', '"Topic":"t"'),
    "a topic without letters": PLAIN.replace('"topic":"t"', '"topic":""'),
    "a value alone": json.dumps(json.loads(PLAIN)["value"]),
    "null": "null",
    "a number": "5",
    "a list": f"[{PLAIN}]",
    "a document behind another": f"{PLAIN} {PLAIN}",
    "a comma behind the last member": PLAIN[:-1] + ",}",
    "a comma behind the last element": PLAIN.replace('"x":1', '"x":[1, ]'),
    "a comma and white space": PLAIN[:-1] + ", \t }",
    "a cut line": PLAIN[:-7],
    "a member that comes twice": PLAIN.replace('"offset":3', '"offset":3,"offset":4'),
    "a column that comes twice": PLAIN.replace('"x":1', '"id":1'),
    "a name with a control character": PLAIN.replace('"x":1', '"x\\u0001y":1'),
    "an image that is a text": PLAIN.replace('"after":{"id":1,"x":1}', '"after":"text"'),
    "a key that is a number": PLAIN.replace('"key":{"id":1}', '"key":1'),
    "a flattened tombstone": json.dumps({"topic": "t", "partition": 0, "offset": 4, "key": {"__deleted": 1}, "value": None}),
    "a source that is a text": PLAIN.replace('"source":{', '"source":"a","other":{'),
    "another connector": PLAIN.replace('"connector":"postgresql"', '"connector":"vitess"'),
    "bytes that are not UTF-8": PLAIN.replace('"x":1', '"x":"\udcff"'),
    "a byte order mark": "\ufeff" + PLAIN,
    "a line separator behind a document": f"{PLAIN}\u2028{PLAIN}",
    "white space of Unicode behind a document": PLAIN + "\u2028",
    "text behind a document": PLAIN + " x",
    "half of a surrogate pair": PLAIN.replace('"x":1', '"x":"\\ud83d"'),
    "half of a surrogate pair in the key": PLAIN.replace('"key":{"id":1}', '"key":{"id":"\\ud83d"}'),
    "no value": json.dumps({"topic": "t", "partition": 0, "offset": 4, "key": {"id": 1}}),
    "a value under another name": PLAIN.replace('"value":', '"message":'),
    "a null under another name": '{"topic": "t", "partition": 0, "offset": 4, "key": {"id": 1}, "message": null}',
    "a null inside of another member": '{"topic": "t", "partition": 0, "offset": 4, "headers": {"value": null}, "key": {"id": 1}}',
    "a record's place in an envelope": json.dumps({**json.loads(PLAIN)["value"], "topic": "t", "partition": 0, "offset": 3}),
    "a schema that is null": PLAIN.replace('"value":{', '"value":{"schema":null,"payload":{')[:-1] + "}}",
}


ROW = postgresql("c", commit=5, change=6, after={"id": 1}, topic="t")["value"]
SOURCE = {"connector": "sqlserver", "name": "s", "db": "d", "schema": "dbo", "table": "t", "version": "3.6"}
CONTROL: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
    "begin": ({"id": "7"}, {"status": "BEGIN", "id": "7", "event_count": None, "data_collections": None, "ts_ms": 5}),
    "end": ({"id": "7"}, {"status": "END", "id": "7", "event_count": 1, "data_collections": [{"data_collection": "a.b"}], "ts_ms": 5}),
    "heartbeat": ({"serverName": "s"}, {"ts_ms": 5}),
    "heartbeat without a key": (None, {"ts_ms": 5}),
    "schema change": ({"databaseName": "d"}, {"source": SOURCE, "ts_ms": 5, "databaseName": "d", "ddl": "CREATE", "tableChanges": []}),
    "schema change of no table": ({"databaseName": "d"}, {"source": {"connector": "mysql", "table": None}, "databaseName": "d", "ddl": ""}),
}
NO_CONTROL: dict[str, tuple[Any, Any]] = {
    "a member more": ({"id": "7"}, {**CONTROL["end"][1], "amount": 1}),
    "a row of two columns": ({"id": "7"}, {"id": "7", "status": "END"}),
    "another status": ({"id": "7"}, {**CONTROL["end"][1], "status": "OPEN"}),
    "a time that is a text": ({"serverName": "s"}, {"ts_ms": "5"}),
    "a row of one column": ({"id": 1}, {"ts_ms": 5}),
    "no database": ({"databaseName": None}, {"source": SOURCE, "databaseName": None, "ddl": "CREATE"}),
    "a source that is a text": ({"databaseName": "d"}, {"source": "s", "databaseName": "d", "ddl": "CREATE"}),
    "a table that is a number": ({"databaseName": "d"}, {"source": {**SOURCE, "table": 5}, "databaseName": "d", "ddl": "CREATE"}),
    "a key that is a number": (7, CONTROL["end"][1]),
    "an unwrapped schema": ({"id": "7"}, {"schema": None, "payload": CONTROL["end"][1]}),
    "a mark of another shape": ({"id": "7"}, {**CONTROL["end"][1], "data_collections": {"__op": "c"}}),
    "a member that comes twice": ({"id": "7"}, json.dumps(CONTROL["end"][1]).replace('"id"', '"id": "8", "id"')),
    "a comma behind the last element": ({"id": "7"}, json.dumps(CONTROL["end"][1]).replace("}]", "}, ]")),
}


def control_line(key: Any, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return f'{{"topic": "c", "partition": 0, "offset": 3, "headers": [], "key": {json.dumps(key)}, "value": {text}}}'


def test_control_events_need_no_spark(tmp_path: Path, spark: SparkSession) -> None:
    wrapped = {name: (key, {"schema": {"type": "struct"}, "payload": value}) for name, (key, value) in CONTROL.items()}
    for layout, events in (("bare", CONTROL), ("wrapped", wrapped)):
        (tmp_path / f"{layout}.jsonl").write_text("\n".join(control_line(*event) for event in events.values()), encoding="utf-8")
        keyed = [(json.dumps(key), json.dumps(value)) for key, value in events.values() if key]
        land(tmp_path / layout, "\n".join(value for _, value in keyed), "\n".join(key for key, _ in keyed))
        land(tmp_path / f"{layout} without keys", "\n\n".join(value for _, value in keyed), None)
    assert assert_alike(spark, tmp_path) == []
    kinds = {(row[FILE].split("/")[0], row["kind"]) for row in survey_natively(str(tmp_path), files_of(tmp_path))[0]}
    assert len(kinds) == 6 * 3


def test_what_only_looks_like_a_control_event_is_left_to_spark(tmp_path: Path, spark: SparkSession) -> None:
    for name, (key, value) in NO_CONTROL.items():
        folder = tmp_path / name.replace(" ", "_")
        folder.mkdir()
        (folder / "alone.jsonl").write_text(control_line(key, value), encoding="utf-8")
        # One odd line leaves its file to Spark, and no other file.
        (folder / "plain.jsonl").write_text(control_line(*CONTROL["end"]), encoding="utf-8")
        (folder / "with_rows.jsonl").write_text(f"{PLAIN}\n{control_line(*CONTROL['end'])}\n{control_line(key, value)}\n", encoding="utf-8")
    left = {file.path for file in assert_alike(spark, tmp_path)}
    assert left == {f"{name.replace(' ', '_')}/{file}.jsonl" for name in NO_CONTROL for file in ("alone", "with_rows")}


def test_rows_and_control_events_in_one_file_need_no_spark(tmp_path: Path, spark: SparkSession) -> None:
    gone = json.dumps({**tombstone({"id": 1}, topic="t"), "offset": 4})
    controls = [control_line(*event) for event in CONTROL.values()]
    (tmp_path / "hour.jsonl").write_text("\n".join([PLAIN, *controls, PLAIN, gone]), encoding="utf-8")
    assert assert_alike(spark, tmp_path) == []
    counts = [(row["topic"], row["kind"], row["records"]) for row in survey_natively(str(tmp_path), files_of(tmp_path))[0]]
    assert sorted(counts) == [
        ("c", "heartbeat", 1),
        ("c", "heartbeat", 1),
        ("c", "schema_change", 1),
        ("c", "schema_change", 1),
        ("c", "transaction", 2),
        ("t", "c", 2),
        ("t", "tombstone", 1),
    ]


def test_events_without_images_need_no_spark(tmp_path: Path, spark: SparkSession) -> None:
    message = {**ROW, "after": None, "before": None, "op": "m", "message": {"prefix": "p", "content": "YQ=="}}
    truncate = {**ROW, "after": None, "before": None, "op": "t"}
    for name, value in (("message", message), ("truncate", truncate), ("wrapped", {"schema": {"type": "struct"}, "payload": truncate})):
        (tmp_path / f"{name}.jsonl").write_text(control_line(None, value), encoding="utf-8")
    assert assert_alike(spark, tmp_path) == []


def test_a_header_that_names_the_operation_is_no_mark(tmp_path: Path, spark: SparkSession) -> None:
    named = {**tombstone({"id": 1}, topic="t", offset=4), "headers": [{"key": "__op", "value": "d"}]}
    write_records(tmp_path / "named.jsonl", [PLAIN, named])
    # A row with columns of a record's names, flattened.
    write_records(tmp_path / "flattened.jsonl", ['{"topic": "t", "partition": 1, "offset": 2, "value": null, "__op": "c"}'])
    assert [file.path for file in assert_alike(spark, tmp_path)] == ["flattened.jsonl"]


def test_a_file_without_a_line_needs_no_spark(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    write_records(tmp_path / "whole.jsonl", [PLAIN])
    rows, others = survey_natively(str(tmp_path), files_of(tmp_path))
    assert ([row[FILE] for row in rows], others) == (["whole.jsonl"], [])


@pytest.mark.parametrize("line", ODD.values(), ids=ODD)
def test_a_file_with_any_other_line_is_left_to_spark_whole(line: str, tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_bytes(f"{PLAIN}\n{line}\n{PLAIN}\n".encode("utf-8", "surrogateescape"))
    rows, others = survey_natively(str(tmp_path), files_of(tmp_path))
    assert (rows, [file.path for file in others]) == ([], ["odd.jsonl"])


def test_odd_lines_are_counted_alike_beside_plain_ones(tmp_path: Path, spark: SparkSession) -> None:
    """Each file alone: what is left to Spark is whatever Spark's own survey says."""
    for name, line in ODD.items():
        if name not in ("a list", "bytes that are not UTF-8"):
            (tmp_path / f"{name}.jsonl").write_text(f"{PLAIN}\n{line}\n{PLAIN}\n", encoding="utf-8")
    assert len(assert_alike(spark, tmp_path)) == len(ODD) - 2


def test_an_explicit_null_needs_no_spark(tmp_path: Path, spark: SparkSession) -> None:
    """Counted by its text, in every spelling; a header of that name does not hide it from Spark's count."""
    gone = {**tombstone({"id": 1}, topic="t"), "offset": 4}
    write_records(
        tmp_path / "plain.jsonl", [PLAIN, gone, json.dumps(gone, separators=(",", ":")), json.dumps(gone).replace(": null", " :  null")]
    )
    write_records(tmp_path / "with_a_header.jsonl", [PLAIN, {**gone, "headers": {"value": {"a": None}}}])
    assert [file.path for file in assert_alike(spark, tmp_path)] == ["with_a_header.jsonl"]


@pytest.mark.parametrize("name", ["text.jsonl.bz2", "text.jsonl.GZ", "text.jsonl.zstd"])
def test_text_under_the_name_of_a_compressed_file_is_left_to_spark(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(PLAIN)
    assert survey_natively(str(tmp_path), files_of(tmp_path))[0] == []


def test_a_plain_file_beside_one_of_other_records_is_surveyed(tmp_path: Path) -> None:
    (tmp_path / "plain.jsonl.gz").write_bytes(gzip.compress(f"{PLAIN}\r\n\n  \n{PLAIN}".encode()))
    (tmp_path / "changes.jsonl").write_text(ODD["a schema change"])
    rows, others = survey_natively(str(tmp_path), files_of(tmp_path))
    assert [file.path for file in others] == ["changes.jsonl"]
    assert [(row["topic"], row["kind"], row["records"], row["key_shape"], row["value_shape"]) for row in rows] == [
        ("t", "c", 2, '["id"]', '["id","x"]')
    ]


VALUE = json.dumps(postgresql("c", commit=5, change=6, after={"id": 1, "x": 1}, topic="t")["value"])
SINK = "t/partition=0/t+0+0000000005"


def land(root: Path, values: str, keys: str | None) -> None:
    for name, lines in ((f"{SINK}.json", values), (f"{SINK}.keys.json", keys)):
        if lines is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(lines, encoding="utf-8")


@pytest.mark.parametrize(
    "keys", ['{"id": 1}', '{"schema": {"type": "struct"}, "payload": {"id": 1}}', None], ids=["bare", "schema", "none"]
)
@pytest.mark.parametrize("wrapped", [False, True], ids=["bare values", "values with schemas"])
def test_a_sink_s_plain_values_need_no_spark(keys: str | None, wrapped: bool, tmp_path: Path, spark: SparkSession) -> None:
    value = f'{{"schema": {{"type": "struct", "fields": []}}, "payload": {VALUE}}}' if wrapped else VALUE
    land(tmp_path, f"{value}\n{value}\n", keys and f"{keys}\n{keys}\n")
    write_records(tmp_path / "whole.jsonl", [PLAIN])
    assert assert_alike(spark, tmp_path) == []


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        (f"{VALUE}\n{VALUE}\n", '{"id": 1}\n'),
        (f"{VALUE}\n", '{"id": 1}\n{"id": 2}\n'),
        (f"{VALUE}\n\n{VALUE}\n", '{"id": 1}\n{"id": 2}\n\n'),
        (f"{VALUE}\n{VALUE}\n", '{"id": 1}\nnull\n'),
        (f"{VALUE}\n{VALUE}\n", '{"id": 1}\n2\n'),
        (f"{VALUE}\n{VALUE}\n", '{"id": 1}\n{"id": 2, "id": 3}\n'),
        (f"{VALUE}\n{PLAIN}\n", '{"id": 1}\n{"id": 2}\n'),
        (f"{VALUE}\nnull\n", None),
        (VALUE.replace('"op"', '"topic": "t", "op"'), None),
    ],
    ids=["no key", "no value", "blank lines", "null key", "single value", "twice", "a whole record", "null", "a topic"],
)
def test_a_sink_s_other_files_are_left_to_spark(values: str, keys: str | None, tmp_path: Path, spark: SparkSession) -> None:
    land(tmp_path, values, keys)
    assert [file.path for file in assert_alike(spark, tmp_path)] == [f"{SINK}.json"]
