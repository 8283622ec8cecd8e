"""Deletion vectors, as Delta's own writer stores them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyroaring import BitMap64

from airflow_cdc.pipeline.target.deletion_vectors import UnreadableVectorError, read_vector, write_vectors

OF_SPARK = "0100000024d1d339640100000000000000000000003a30000001000000000001001000000000000100e2be924e"
"""A file that Spark wrote: rows 0 and 1."""
DESCRIBED = {"storageType": "u", "pathOrInlineDv": "cyT@8TewurG&o<Dpn)ij", "offset": 1, "sizeInBytes": 36, "cardinality": 2}
NAME = "deletion_vector_269afef2-aba7-442e-8553-356e4ea8e38d.bin"


def test_a_vector_of_spark_is_read(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(bytes.fromhex(OF_SPARK))
    assert list(read_vector(str(tmp_path), DESCRIBED)) == [0, 1]


def test_a_vector_in_a_folder_and_one_in_the_log_are_read(tmp_path: Path) -> None:
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / NAME).write_bytes(bytes.fromhex(OF_SPARK))
    assert list(read_vector(str(tmp_path), {**DESCRIBED, "pathOrInlineDv": f"ab{DESCRIBED['pathOrInlineDv']}"})) == [0, 1]
    inline = {"storageType": "i", "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000315c8Xg00031", "sizeInBytes": 36, "cardinality": 2}
    assert list(read_vector(str(tmp_path), inline)) == [0, 1]


def test_a_vector_of_the_older_form_is_refused(tmp_path: Path) -> None:
    # The example of Delta's protocol, rows 3, 4, 7, 11, 18 and 29 in a form of one implementation.
    older = {
        "storageType": "i",
        "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    with pytest.raises(UnreadableVectorError, match="begins with"):
        read_vector(str(tmp_path), older)


@pytest.mark.parametrize("rows", [[0], [5, 2**32 + 7, 2**40], range(70_000), range(0, 200_000, 2)])
def test_what_is_written_is_read_again(rows: list[int], tmp_path: Path) -> None:
    found = write_vectors(str(tmp_path), {"one": BitMap64(rows), "other": BitMap64([1])})
    assert len(list(tmp_path.iterdir())) == 1
    assert list(read_vector(str(tmp_path), found["one"])) == list(rows)
    assert list(read_vector(str(tmp_path), found["other"])) == [1]


def test_no_descriptor_is_no_row_and_no_vector_no_file(tmp_path: Path) -> None:
    assert not read_vector(str(tmp_path), None)
    assert write_vectors(str(tmp_path), {}) == {}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"storageType": "p"}, "outside of the table"),
        ({"cardinality": 3}, "has 2 rows, the log says 3"),
        ({"sizeInBytes": 35}, "its size or its checksum"),
        ({"storageType": "i"}, "begins with"),
        ({"pathOrInlineDv": "\u00e9"}, "no Z85"),
    ],
)
def test_a_vector_that_is_not_the_described_one_is_refused(change: dict[str, object], reason: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(bytes.fromhex(OF_SPARK))
    with pytest.raises(UnreadableVectorError, match=reason):
        read_vector(str(tmp_path), {**DESCRIBED, **change})
