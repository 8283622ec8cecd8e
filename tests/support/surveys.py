"""Build what a survey finds, in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import fsspec
from hypothesis import strategies as st

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import RecordLayout, Survey, TopicShape

ARCHIVE = "s3://bucket/archive"
FS = fsspec.filesystem("file")


def archived(path: str, size: int = 1) -> ArchivedFile:
    """Return a file whose name says nothing of its topic."""
    return ArchivedFile(path, size, path)


def shape(
    file: str, topic: str, kind: str = "c", *, key_shape: str | None = '["id"]', value_shape: str | None = '["id","v"]'
) -> TopicShape:
    """Return one shape of a topic's records in a file."""
    return TopicShape(file, topic, RecordLayout.RECORD, kind, "sqlserver", 0, key_shape, value_shape, True, 1, 0, 0)


def survey(number: int, files: Mapping[str, Iterable[str]], *, sizes: Mapping[str, int] | None = None, kind: str = "c") -> Survey:
    """Return a survey that found the topics in the files.

    :param files: by path: the topics.
    """
    listed = tuple(archived(path, (sizes or {}).get(path, 1)) for path in sorted(files))
    return Survey(ARCHIVE, number, listed, tuple(shape(path, topic, kind) for path in sorted(files) for topic in files[path]))


names = st.text("ab+.0_é/ %", min_size=1, max_size=8)
numbers = st.integers(0, 2**70)
files = st.builds(ArchivedFile, names, numbers, names, st.none() | numbers, st.none() | numbers, st.none() | names)
schemas = st.none() | st.sampled_from(['["id"]', '["a","é"]', '{"type":"struct","fields":[]}'])
shapes = st.builds(
    TopicShape,
    names,
    names,
    st.sampled_from(RecordLayout),
    st.sampled_from(["c", "tombstone", "malformed"]),
    st.none() | names,
    st.none() | numbers,
    schemas,
    schemas,
    st.booleans(),
    numbers,
    st.none() | numbers,
    st.none() | numbers,
)
