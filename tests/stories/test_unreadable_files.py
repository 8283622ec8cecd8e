"""An archived file that cannot be read stops its topic alone, is named, and is taken up once it is replaced."""

from __future__ import annotations

import bz2
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.files import absolute_uri
from airflow_cdc.model.look.groups import plan_groups
from airflow_cdc.model.look.pending import PendingFiles, pending_files
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.state.lake import archives_in
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.survey.survey_files import survey_files
from tests.conftest import Apply
from tests.support.events import numbered, sqlserver, write_records, write_sink_file
from tests.support.tables import read_rows

ORDERS, CARTS = "server1.testDB.dbo.orders", "server1.testDB.dbo.carts"


def created(number: int, topic: str) -> dict[str, Any]:
    return sqlserver("c", commit=number, after={"id": number, "v": "x" * 50}, topic=topic, offset=number)


def archive_one(archive: Path, number: int, topic: str, *, suffix: str = "") -> Path:
    return write_records(archive / f"{topic}+0+{number}.json{suffix}", [created(number, topic)])


def text(*events: dict[str, Any]) -> bytes:
    return "".join(json.dumps(item) + "\n" for item in events).encode()


def many(topic: str, count: int = 2000) -> bytes:
    return text(*(created(number, topic) for number in range(1, count + 1)))


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


BAD: dict[str, bytes] = {
    "text.jsonl.gz": text(created(1, CARTS)),
    "cut.jsonl.gz": cut(gzip.compress(many(CARTS))),
    "without_its_end.jsonl.gz": gzip.compress(text(created(1, CARTS)))[:-4],
    "garbage_behind.jsonl.gz": gzip.compress(text(created(1, CARTS))) + b"garbage",
    "text.jsonl.bz2": text(created(1, CARTS)),
    "cut.jsonl.bz2": cut(bz2.compress(many(CARTS))),
    "second_is_a_header.jsonl.bz2": bz2.compress(text(created(1, CARTS))) + b"BZh9",
    "text.jsonl.zst": text(created(1, CARTS)),
    "10:30.jsonl": text(created(1, CARTS)),
    "garbage.parquet": b"garbage" * 50,
    "begins_like_one.parquet": b"PAR1" + b"\0" * 50 + b"PAR1",
    "garbage.avro": b"Obj\x01" + b"\xff" * 50,
}

QUICK = ("cut.jsonl.gz", "10:30.jsonl", "garbage.parquet")
"""A file that breaks off, a name that is no path of Hadoop's, and a file of a typed format."""


def statuses(report: ApplyReport) -> dict[str, str]:
    return {flow.flow: flow.status.value for flow in report.flows}


def outcome(report: ApplyReport, topic: str) -> FlowOutcome:
    return next(flow for flow in report.flows if flow.flow == topic)


def ids(spark: SparkSession, lake: Path, topic: str) -> list[int]:
    return [row["id"] for row in read_rows(spark, str(lake), topic).rows]


def pending(archive: Path, lake: Path) -> PendingFiles:
    (fs, root), (lake_fs, lake_root) = file_system(str(archive)), file_system(str(lake))
    return pending_files(archive_fs=fs, archive_root=root, archive=absolute_uri(str(archive)), lake_fs=lake_fs, lake_root=lake_root)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.deep) for name in BAD])
def test_one_unreadable_file_is_set_aside_and_the_other_topics_go_on(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, name: str
) -> None:
    write_records(archive / "orders.jsonl", [created(1, ORDERS)])
    (archive / CARTS).mkdir()
    path = archive / CARTS / name
    path.write_bytes(BAD[name])

    report = apply(archive, lake, may_fail=True)

    (bad,) = report.set_aside_files
    assert (bad.path, bad.reason) == (f"{CARTS}/{name}", "unreadable_file")
    assert bad.detail
    assert not report.ok
    assert (outcome(report, ORDERS).status, ids(spark, lake, ORDERS)) == (FlowStatus.APPLIED, [1])
    (error,) = [flow.error for flow in report.flows if flow.error]
    assert (error["type"], error["transient"]) == ("UnreadableFileError", False)
    assert bad.path in error["message"]
    assert ApplyReport.from_json(report.to_json()) == report


@pytest.mark.deep
def test_a_topic_stops_at_its_unreadable_file_and_goes_on_once_that_is_replaced(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    archive_one(archive, 1, ORDERS)
    archive_one(archive, 1, CARTS)
    apply(archive, lake)
    bad = archive_one(archive, 2, CARTS, suffix=".gz")
    whole = bad.read_bytes()
    bad.write_bytes(whole[:-6])
    archive_one(archive, 3, CARTS)
    archive_one(archive, 2, ORDERS)

    # The same at every run, until somebody acts; nothing of the topic is applied.
    for _ in range(2):
        report = apply(archive, lake, may_fail=True)
        assert statuses(report)[CARTS] == "failed"
        assert (ids(spark, lake, CARTS), ids(spark, lake, ORDERS)) == ([1], [1, 2])
    # Only what was asked for.
    assert apply(archive, lake, tables=(ORDERS,)).ok
    bad.write_bytes(whole)
    report = apply(archive, lake)
    assert (statuses(report)[CARTS], report.set_aside_files) == ("applied", ())
    assert ids(spark, lake, CARTS) == [1, 2, 3]
    assert statuses(apply(archive, lake)) == {CARTS: "up_to_date", ORDERS: "up_to_date"}


def test_an_unreadable_file_is_looked_into_once_and_calls_for_no_run(
    apply: Apply, archive: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive_one(archive, 1, ORDERS)
    bad = archive_one(archive, 1, CARTS, suffix=".gz")
    bad.write_bytes(b"no gzip")
    apply(archive, lake, may_fail=True)

    assert not pending(archive, lake)
    # A plan of groups has one for it all the same: else a Dag of groups would be green.
    assert [group.tables for group in plan_groups(pending(archive, lake))] == [(CARTS,)]
    with monkeypatch.context() as no_survey:
        no_survey.setattr("airflow_cdc.pipeline.survey.survey_readable.survey_files", None)
        assert not apply(archive, lake, may_fail=True).ok
    os.utime(bad, (1, 1))
    assert [file.path for file in pending(archive, lake).unsurveyed] == [str(bad.relative_to(archive))]


@pytest.mark.deep
def test_a_file_whose_keys_cannot_be_read_goes_on_once_the_keys_are_replaced(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    path = write_sink_file(archive, [created(1, CARTS)], keys=True, suffix=".gz")
    keys = path.with_name(path.name.replace(".json", ".keys.json"))
    whole = keys.read_bytes()
    keys.write_bytes(whole[:-6])
    report = apply(archive, lake, may_fail=True)
    assert [file.path for file in report.set_aside_files] == [str(path.relative_to(archive))]
    keys.write_bytes(whole)
    assert apply(archive, lake).set_aside_files == ()
    assert ids(spark, lake, CARTS) == [1]


@pytest.mark.deep
def test_an_unreadable_file_that_is_moved_away_is_forgotten(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    archive_one(archive, 1, CARTS)
    bad = archive_one(archive, 2, CARTS, suffix=".gz")
    whole = bad.read_bytes()
    bad.write_bytes(b"no gzip")
    assert not apply(archive, lake, may_fail=True).ok
    bad.unlink()
    assert apply(archive, lake).set_aside_files == ()
    assert ids(spark, lake, CARTS) == [1]
    bad.write_bytes(whole)
    apply(archive, lake)
    assert ids(spark, lake, CARTS) == [1, 2]


def test_many_misnamed_files_are_found_by_one_failed_survey(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    surveys = []

    def counted(*args: Any, **options: Any) -> Any:
        surveys.append(args)
        return survey_files(*args, **options)

    monkeypatch.setattr("airflow_cdc.pipeline.survey.survey_readable.survey_files", counted)
    write_records(archive / "orders.jsonl", [created(1, ORDERS)])
    for number in range(30):
        (archive / f"{CARTS}+0+{number}.json.gz").write_bytes(b"no gzip")
    report = apply(archive, lake, may_fail=True)
    assert len(report.set_aside_files) == 30
    assert len(surveys) == 2
    assert ids(spark, lake, ORDERS) == [1]


def test_a_failed_store_is_no_unreadable_file(apply: Apply, archive: Path, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file://{archive}/a.jsonl.  SQLSTATE: KD001\n"

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(f"{failed}\tat org.apache\nCaused by: java.net.SocketTimeoutException: Read timed out")

    monkeypatch.setattr("airflow_cdc.pipeline.survey.survey_readable.survey_files", fail)
    write_records(archive / "a.jsonl", numbered([created(1, CARTS)]))
    with pytest.raises(Exception, match="SocketTimeoutException: Read timed out") as caught:
        apply(archive, lake)
    assert type(caught.value).__name__ == "SparkFailedError"


def test_an_empty_file_is_readable_whatever_its_name(apply: Apply, archive: Path, lake: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl", "c.jsonl.bz2", "d.parquet"):
        (archive / name).write_bytes(b"")
    assert apply(archive, lake).set_aside_files == ()


def test_an_archive_of_which_nothing_can_be_read_is_known_by_its_set_aside_files(apply: Apply, archive: Path, lake: Path) -> None:
    (archive / "orders.jsonl.gz").write_bytes(b"no gzip")
    report = apply(archive, lake, may_fail=True)
    assert statuses(report) == {"orders": "failed"}
    fs, root = file_system(str(lake))
    assert [file.path for state in archives_in(fs, root) for file in state.set_aside()] == ["orders.jsonl.gz"]


@pytest.mark.deep
@pytest.mark.parametrize("looks_changed", [True, False], ids=["another size", "same size and time"])
def test_a_file_that_rots_after_its_survey_is_named_and_goes_on_once_it_is_replaced(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, *, looks_changed: bool
) -> None:
    """A job that failed comes in py4j's own error: the flow ended with UnexpectedError, which names no file."""
    archive_one(archive, 1, ORDERS)
    path = archive / f"{CARTS}+0+1.json.gz"
    path.write_bytes(gzip.compress(many(CARTS)))
    apply(archive, lake, only_survey=True)
    whole, was = path.read_bytes(), path.stat()
    path.write_bytes(cut(whole) if looks_changed else cut(whole) + b"\0" * (len(whole) - len(cut(whole))))
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))

    report = apply(archive, lake, may_fail=True)

    error = outcome(report, CARTS).error
    assert error
    assert path.name in error["message"]
    if looks_changed:
        assert (error["type"], error["transient"]) == ("ArchivedFileChangedError", True)
        # Surveyed anew, it is set aside.
        error = outcome(apply(archive, lake, may_fail=True), CARTS).error
        assert error
    assert (error["type"], error["transient"]) == ("UnreadableFileError", False)
    assert path.name in error["message"]
    assert "Replace" in error["next_step"]
    assert ids(spark, lake, ORDERS) == [1]
    path.write_bytes(whole)
    apply(archive, lake)
    assert len(ids(spark, lake, CARTS)) == 2000
