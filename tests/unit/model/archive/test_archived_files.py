"""What a path below the archive's root says."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from airflow_cdc.model.archive.archived_files import ArchivedFile, FileFormat, classify, list_archive, side_by_side
from airflow_cdc.model.errors import ArchiveNotFoundError


def described(*paths: str) -> list[ArchivedFile]:
    """Return the data files among paths of one byte each; none may be left aside."""
    listing = classify((path, 1) for path in paths)
    assert listing.ignored == ()
    return list(listing.files)


TOPIC = "server1.testDB.dbo.customers"


@pytest.mark.parametrize(
    ("path", "topic", "partition", "start_offset"),
    [
        # a Kafka Connect sink's names, with and without folders
        (f"{TOPIC}/partition=0/{TOPIC}+0+0000000000.json", TOPIC, 0, 0),
        (f"{TOPIC}/partition=12/{TOPIC}+12+0000012345.json.gz", TOPIC, 12, 12345),
        (f"topics/{TOPIC}/year=2026/month=11/day=20/hour=05/{TOPIC}+3+0000000007.json", TOPIC, 3, 7),
        (f"{TOPIC}+1+99999999999.json", TOPIC, 1, 99_999_999_999),
        ("a+b/partition=2/a+b+2+0000000001.json", "a+b", 2, 1),
        ("1+2+3+4.json", "1+2", 3, 4),
        # the folders of a sink around files of another name
        (f"topics/{TOPIC}/partition=4/part-0001.jsonl", TOPIC, 4, None),
        (f"{TOPIC}/year=2026/x.ndjson.gz", TOPIC, None, None),
        # files of whole records under any name: the topic is a guess that the records overrule
        (f"{TOPIC}.jsonl", TOPIC, None, None),
        (f"{TOPIC}.jsonl.gz", TOPIC, None, None),
        (f"sub/folder/{TOPIC}.JSON", TOPIC, None, None),
        ("any name at all", "any name at all", None, None),
        ("2026-11-20.log", "2026-11-20", None, None),
        ("events.txt", "events", None, None),
        ("events.gz", "events", None, None),
        (f"{TOPIC}.jsonl.zst", TOPIC, None, None),
        (f"{TOPIC}.json.bz2", TOPIC, None, None),
        (f"{TOPIC}+3+7.json.zstd", TOPIC, 3, 7),
    ],
)
def test_a_path_names_topic_partition_and_first_offset(path: str, topic: str, partition: int | None, start_offset: int | None) -> None:
    assert described(path) == [ArchivedFile(path, 1, topic, partition, start_offset)]


@pytest.mark.parametrize(
    ("path", "topic", "start_offset", "form"),
    [
        (f"{TOPIC}+0+0000000042.avro", TOPIC, 42, FileFormat.AVRO),
        (f"{TOPIC}+0+0000000042.snappy.parquet", TOPIC, 42, FileFormat.PARQUET),
        ("events.AVRO", "events", None, FileFormat.AVRO),
        ("events.zstd.parquet", "events", None, FileFormat.PARQUET),
    ],
)
def test_a_path_shows_the_format(path: str, topic: str, start_offset: int | None, form: FileFormat) -> None:
    (file,) = described(path)
    assert (file.topic, file.start_offset, file.format) == (topic, start_offset, form)


@pytest.mark.parametrize("ending", ["avro", "parquet", "snappy.parquet"])
def test_avro_and_parquet_have_companions_too(ending: str) -> None:
    (file,) = described(f"{TOPIC}+0+7.{ending}", f"{TOPIC}+0+7.keys.{ending}")
    assert file.keys_path == f"{TOPIC}+0+7.keys.{ending}"


@pytest.mark.parametrize(
    ("path", "topic", "partition", "start_offset"),
    [
        ("events.2", "events.2", None, None),
        ("partition=x/y.json", "y", None, None),
    ],
)
def test_any_other_name_is_the_topic(path: str, topic: str, partition: int | None, start_offset: int | None) -> None:
    assert described(path) == [ArchivedFile(path, 1, topic, partition, start_offset)]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst", ".bz2"])
def test_companions_run_beside_their_values_and_are_no_data(suffix: str) -> None:
    stem = f"{TOPIC}/partition=0/{TOPIC}+0+0000000000"
    values, keys, headers = (f"{stem}{part}.json{suffix}" for part in ("", ".keys", ".headers"))

    assert described(values, keys, headers) == [ArchivedFile(values, 1, TOPIC, 0, 0, keys)]
    # The same in any order, and without keys.
    assert described(headers, keys, values) == [ArchivedFile(values, 1, TOPIC, 0, 0, keys)]
    # Of another name, where only the content shows what the second one is.
    assert described(f"b.keys.json{suffix}", f"b.json{suffix}") == [
        ArchivedFile(f"b.json{suffix}", 1, "b", keys_path=f"b.keys.json{suffix}"),
        ArchivedFile(f"b.keys.json{suffix}", 1, "b.keys", may_be_companion=True),
    ]
    assert described(headers, values) == [ArchivedFile(values, 1, TOPIC, 0, 0)]
    # A companion whose values are not (or no longer) there is no data either, ...
    assert described(keys, headers) == []
    # ... nor is it the companion of another file's values, or of the same file with another ending.
    other = f"{TOPIC}/partition=0/{TOPIC}+0+0000000009.json{suffix}"
    assert described(keys, other) == [ArchivedFile(other, 1, TOPIC, 0, 9)]


def test_a_table_may_be_called_keys_or_headers() -> None:
    names = ["server1.dbo.headers.json", "server1.dbo.keys.json", "server1.dbo.keys.json.gz"]
    assert [(file.path, file.topic) for file in described(*names)] == [
        ("server1.dbo.headers.json", "server1.dbo.headers"),
        ("server1.dbo.keys.json", "server1.dbo.keys"),
        ("server1.dbo.keys.json.gz", "server1.dbo.keys"),
    ]
    sink = "server1.dbo.keys/partition=0/server1.dbo.keys+0+0000000000.json"
    assert described(sink) == [ArchivedFile(sink, 1, "server1.dbo.keys", 0, 0)]


@pytest.mark.parametrize(
    "path",
    [
        ".DS_Store",
        f"{TOPIC}/.{TOPIC}+0+0000000000.json.crc",
        ".events.jsonl.swp",
        "_SUCCESS",
        "x/_SUCCESS",
        "_committed_8123",
        "_started_8123",
        # what a writer has not finished comes again under its final name
        "_temporary/0/task_1/part-0.jsonl",
        ".spark-staging-1/part-0.jsonl",
        f"+tmp/{TOPIC}/partition=0/8f3.json",
        # a heartbeat's name says that no row of a table is in it
        "__debezium-heartbeat.server1/partition=0/__debezium-heartbeat.server1+0+0000000000.json",
    ],
)
def test_hidden_files_and_writers_own_marks_are_not_even_mentioned(path: str) -> None:
    listing = classify([(path, 1)])
    assert (listing.files, listing.ignored) == ((), ())


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "workload.sql",
        "a.csv",
        "a.csv.gz",
        "a.parquet.gz",
        "a.avro.zst",
        "a.orc",
        "a.xml",
        "flows.yaml",
        "flows.yml",
        "a.zip",
        "a.tar.gz",
        "a.jsonl.crc",
        "a.jsonl.tmp",
        "a.jsonl.part",
        "a.jsonl.INPROGRESS",
        "a.jsonl.pending",
        # Spark would read these as empty, without a word
        "_events.jsonl",
        "_server1.dbo.t/partition=0/_server1.dbo.t+0+0000000000.json",
        "a.jsonl._COPYING_",
    ],
)
def test_what_is_neither_data_nor_companion_is_reported(path: str) -> None:
    listing = classify([(path, 1), ("a.jsonl", 1)])
    assert [file.path for file in listing.files] == ["a.jsonl"]
    assert listing.ignored == (path,)


def test_a_listing_is_in_the_order_of_paths_and_knows_sizes(tmp_path: Path) -> None:
    for name, text in (("b.jsonl", "12"), ("a/z.jsonl", "123"), ("a.jsonl", ""), ("notes.md", "x"), ("a/.hidden", "x")):
        path = tmp_path / "archive" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    fs, root = fsspec.core.url_to_fs(str(tmp_path / "archive"))

    for spelled in (root, root + "/"):
        listing = list_archive(fs, spelled)
        assert [(file.path, file.size) for file in listing.files] == [("a.jsonl", 0), ("a/z.jsonl", 3), ("b.jsonl", 2)]
        assert listing.ignored == ("notes.md",)


def test_partitions_are_taken_side_by_side() -> None:
    """A backfill took one partition behind the other: each microbatch began a partition, and counted as late."""
    day = "t/partition={}/day=0{}/t+{}+{:05d}.json"
    paths = [day.format(partition, of_day, partition, offset) for partition in (0, 1) for of_day, offset in ((1, 0), (1, 90), (2, 200))]
    lines = ["t/a.jsonl", "t/z.jsonl"]
    in_order = side_by_side(described(lines[0], *paths, lines[1]))
    assert [file.path for file in in_order] == [
        lines[0],
        *(day.format(partition, of_day, partition, offset) for of_day, offset in ((1, 0), (1, 90), (2, 200)) for partition in (0, 1)),
        lines[1],
    ]
    # Records may lie in any file: their names' order stays.
    assert [file.path for file in side_by_side(described("t/partition=1/a.json", "t/partition=0/b.json"))] == [
        "t/partition=0/b.json",
        "t/partition=1/a.json",
    ]


def test_an_empty_archive_is_one_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    fs, root = fsspec.core.url_to_fs(str(tmp_path))
    assert list_archive(fs, root).files == ()
    with pytest.raises(ArchiveNotFoundError, match=r"no archive at .*/nowhere.*Next step: Check the archive's root URI"):
        list_archive(fs, f"{root}/nowhere")


def test_a_file_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}")
    fs, root = fsspec.core.url_to_fs(str(tmp_path / "a.jsonl"))
    with pytest.raises(ArchiveNotFoundError, match=r"a\.jsonl is a file.*Next step: Give the folder"):
        list_archive(fs, root)


def test_an_archive_in_an_object_store_is_listed_alike() -> None:
    fs = fsspec.filesystem("memory")
    root = "/test_archive/shop"
    fs.pipe_file(f"{root}/{TOPIC}/partition=0/{TOPIC}+0+0000000000.json", b"{}\n")
    fs.pipe_file(f"{root}/{TOPIC}/partition=0/{TOPIC}+0+0000000000.keys.json", b"{}\n")
    try:
        listing = list_archive(fs, root)
    finally:
        fs.rm("/test_archive", recursive=True)
    stem = f"{TOPIC}/partition=0/{TOPIC}+0+0000000000"
    assert listing.files == (ArchivedFile(f"{stem}.json", 3, TOPIC, 0, 0, f"{stem}.keys.json"),)


@pytest.mark.parametrize(
    "file",
    [
        ArchivedFile("a/b.json", 7, "t"),
        ArchivedFile("a/t+0+0.json", 7, "t", 0, 0, "a/t+0+0.keys.json"),
        ArchivedFile("é", 0, "é", 1),
        ArchivedFile("lines.json", 7, "lines", format=FileFormat.ARRAY),
        ArchivedFile("lines", 7, "lines"),
        ArchivedFile("a.avro", 7, "a", format=FileFormat.AVRO, respelled=True),
    ],
)
def test_a_file_survives_its_json(file: ArchivedFile) -> None:
    assert ArchivedFile.from_json(file.to_json()) == file
    assert None not in file.to_json().values()
