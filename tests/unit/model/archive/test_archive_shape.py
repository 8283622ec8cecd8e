"""What an archive is declared to hold, against the names of its files."""

from __future__ import annotations

import pytest

from airflow_cdc.model.archive.archive_shape import ArchiveFormat, ArchiveLayout, ArchiveShape
from airflow_cdc.model.archive.archived_files import classify
from airflow_cdc.model.errors import ConfigurationError

SINK, GZIP, RECORDS, AVRO, PARQUET = "t/t+0+0.json", "t/t+0+9.json.gz", "other/part.jsonl", "t/t+0+5.avro", "t+0+7.parquet"
LISTING = classify([(path, 1) for path in (SINK, GZIP, RECORDS, AVRO, PARQUET, "t/t+0+0.keys.json", "notes.md")])


@pytest.mark.parametrize(
    ("layout", "form", "others"),
    [
        (ArchiveLayout.AUTO, ArchiveFormat.AUTO, []),
        (ArchiveLayout.SINK, ArchiveFormat.AUTO, [RECORDS]),
        (ArchiveLayout.AUTO, ArchiveFormat.JSON, [PARQUET, AVRO]),
        (ArchiveLayout.AUTO, ArchiveFormat.AVRO, [RECORDS, PARQUET, SINK, GZIP]),
        (ArchiveLayout.SINK, ArchiveFormat.PARQUET, [RECORDS, SINK, AVRO, GZIP]),
    ],
)
def test_other_files_are_an_error_that_names_them(layout: ArchiveLayout, form: ArchiveFormat, others: list[str]) -> None:
    shape = ArchiveShape(layout, form)
    if not others:
        shape.check("s3://b/topics", LISTING.files)
        return
    with pytest.raises(ConfigurationError) as refused:
        shape.check("s3://b/topics", LISTING.files)
    assert f"{len(others)} of 5 files are others" in str(refused.value)
    named = str(refused.value).split("are others: ")[1]
    assert all(path in named for path in sorted(others)[:3])
    assert [path for path in (SINK, GZIP, RECORDS, AVRO, PARQUET) if path in named and path not in others] == []
