"""Which files one task folds, and what executors that cannot do it leave to Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError, PythonException
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.apply.native.in_tasks import fold_in_tasks, groups_of
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.spark import task_job
from tests.support.events import Record, numbered, sqlserver
from tests.support.natively import bytes_of, decoder_of
from tests.unit.pipeline.apply.native.test_for_spark import run_in


def decoder_with(partitions: Mapping[str, Sequence[int | None]]) -> Decoder:
    """Return a decoder of files that hold records of partitions; None: of values that do not name theirs."""
    decoder = decoder_of({path: [sqlserver("c", commit=1, after={"id": 1, "name": ""})] for path in partitions})
    (shape, *_) = decoder.shapes
    shapes = [dataclasses.replace(shape, file=path, partition=number) for path, numbers in partitions.items() for number in numbers]
    return dataclasses.replace(decoder, shapes=shapes)


def test_files_that_share_a_partition_are_one_task_s() -> None:
    decoder = decoder_with({"a": [0], "b": [1], "c": [2, 0], "d": [3], "e": [1, 3]})
    assert groups_of(decoder) == [["a", "c"], ["b", "d", "e"]]


def test_values_are_of_the_partition_in_their_file_s_name() -> None:
    decoder = decoder_with({"t+0+0": [None], "t+1+0": [None], "t+0+9": [None]})
    files = [ArchivedFile(file.path, 1, "t", int(file.path[2]), 0) for file in decoder.files]
    assert groups_of(dataclasses.replace(decoder, files=files)) == [["t+0+0", "t+0+9"], ["t+1+0"]]


def lands(folder: Path, files: Mapping[str, Sequence[Record]]) -> Decoder:
    for path, records in files.items():
        (folder / path).write_bytes(bytes_of(path, records))
    decoder = decoder_of(files)
    shapes = [dataclasses.replace(shape, partition=place) for place, shape in enumerate(decoder.shapes)]
    sized = [dataclasses.replace(file, size=(folder / file.path).stat().st_size) for file in decoder.files]
    return dataclasses.replace(decoder, shapes=shapes, files=sized)


def create(key: int, partition: int) -> list[Record]:
    return numbered([sqlserver("c", commit=key, after={"id": key, "name": "x"}, key={"id": key}, partition=partition)])


def test_each_group_is_a_file_and_a_key_in_two_of_them_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    effects: list[str] = []
    decoder = lands(tmp_path, {"a.jsonl": create(1, 0), "b.jsonl": create(2, 1)})
    folded = fold_in_tasks(run_in(tmp_path, spark, effects), decoder)
    assert (sorted(row["id"] for row in folded.changes.collect()), folded.joins_events, effects) == ([1, 2], False, ["stage"])
    assert len(list((tmp_path / "lake").rglob("*.parquet"))) == 2
    twice = lands(tmp_path, {"a.jsonl": create(1, 0), "b.jsonl": create(1, 1)})
    with pytest.raises(HandedOver, match="a key has events in several partitions"):
        fold_in_tasks(run_in(tmp_path, spark, effects), twice)


def test_a_line_that_is_not_plain_leaves_all_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    decoder = lands(tmp_path, {"a.jsonl": create(1, 0), "b.jsonl": create(2, 1)})
    (tmp_path / "b.jsonl").write_text("no JSON", encoding="ascii")
    with pytest.raises(HandedOver, match="not all lines are plain"):
        fold_in_tasks(run_in(tmp_path, spark, []), decoder)


@pytest.mark.parametrize(
    ("error", "asked_again"),
    [
        (PythonException("Traceback …\nModuleNotFoundError: No module named 'airflow_cdc'\n"), False),
        (PySparkRuntimeError("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11"), False),
        (PySparkRuntimeError("an executor was lost"), True),
    ],
)
def test_executors_that_cannot_fold_are_asked_once(
    error: Exception, asked_again: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Failing:
        asked = 0

        def range(self, *_: int) -> Failing:
            self.asked += 1
            return self

        def mapInArrow(self, *_: object) -> Failing:  # noqa: N802 - Spark's name.
            return self

        def collect(self) -> None:
            raise error

    monkeypatch.setattr(task_job, "_unable", [])
    decoder, spark = decoder_with({"a": [0]}), Failing()
    for _ in range(2):
        with pytest.raises(HandedOver, match=r"the executors cannot fold: (.*ModuleNotFoundError|.*MISMATCH|an executor was lost)"):
            fold_in_tasks(run_in(tmp_path, spark, []), decoder)  # type: ignore[arg-type] # it stands for a session
    assert spark.asked == (2 if asked_again else 1)
