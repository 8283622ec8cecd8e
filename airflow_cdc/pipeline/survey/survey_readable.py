"""Survey the files that Spark can read to their end, and set the others aside: one bad file stops its topic, not the archive.

Without bad files this is one survey. A failed survey names its file, and is repeated without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from urllib.parse import unquote

from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archived_files import ArchivedFile, FileFormat
from airflow_cdc.model.archive.compressions import MOST_MAGIC, compression_of, may_end_unseen, why_cut_off, why_not_decompressed
from airflow_cdc.model.archive.set_aside import UNREADABLE, SetAsideFile, set_aside
from airflow_cdc.model.archive.survey import RecordKind, TopicShape
from airflow_cdc.model.errors import SparkFailedError
from airflow_cdc.model.files import FileSystem, is_local
from airflow_cdc.pipeline.spark.spark_errors import failed_file, place_of
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.spark.uris import spark_uri
from airflow_cdc.pipeline.survey.companions import settle_companions
from airflow_cdc.pipeline.survey.survey_files import survey_files
from airflow_cdc.pipeline.survey.survey_natively import survey_natively
from airflow_cdc.runtime.java_home import JavaNotFoundError

_BEGINNINGS = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".zst": b"\x28\xb5\x2f\xfd", ".zstd": b"\x28\xb5\x2f\xfd"}
"""The first bytes of a compressed file, by file extension."""
_READERS = 16


@dataclass(frozen=True)
class ReadableSurvey:
    """The survey of the readable files, and the files set aside."""

    files: tuple[ArchivedFile, ...]
    """With the files that are others' companions, which have no shapes."""
    shapes: tuple[TopicShape, ...]
    set_aside: tuple[SetAsideFile, ...]


def survey_readable(spark: SparkSession, archive: str, files: Sequence[ArchivedFile], *, natively: bool = False) -> ReadableSurvey:
    """Return the result of :func:`~airflow_cdc.pipeline.survey.survey_files` for the readable files, and the files set aside.

    :param natively: whether files that are plain may be read without Spark.
    :raises SparkFailedError: if a file cannot be read for a reason outside the file.
    """
    # Never shown to Spark: Hadoop's codecs believe the lengths that such a file begins with, and end the JVM.
    bad = {file.path: why for file in files for part in _parts(file) if (why := why_not_decompressed(part))}
    bad |= _cut_off(archive, [file for file in files if file.path not in bad])
    settled = settle_companions(archive, [file for file in files if file.path not in bad])
    bad |= settled.uncertain
    try_again: set[str] = set()
    found, shapes, rest = tuple[ArchivedFile, ...](), tuple[TopicShape, ...](), list(settled.files)
    while rest:
        try:
            found, shapes = survey_files(spark, archive, rest, natively=natively)
        except JavaNotFoundError as missing:
            only_spark = survey_natively(archive, rest)[1] if natively else []
            bad |= {file.path: f"only Spark reads it; {missing.message} Next step: {missing.next_step}" for file in only_spark}
            try_again |= {file.path for file in only_spark}
            if not only_spark:
                raise
        except Exception as problem:
            # PySpark has no exception of its own for a failed job.
            bad |= _blamed(archive, rest, problem)
            if not bad.keys() & {file.path for file in rest}:
                raise
        else:
            bad |= _not_what_they_are_named(archive, found, shapes)
            break
        rest = [file for file in rest if file.path not in bad]
    fs, root = file_system(archive)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    aside = [set_aside(fs, root, file, reason=UNREADABLE, detail=bad[file.path], since=now) for file in files if file.path in bad]
    # What changes here is the machine, not the file.
    aside = [replace(each, seen=()) if each.path in try_again else each for each in aside]
    return ReadableSurvey(
        (*settled.companions, *(file for file in found if file.path not in bad and rest)),
        tuple(shape for shape in shapes if shape.file not in bad) if rest else (),
        tuple(aside),
    )


def _blamed(archive: str, files: Sequence[ArchivedFile], problem: Exception) -> dict[str, str]:
    """Return by path the files that made Spark fail, with the cause; none if it failed for another reason."""
    failed = failed_file(problem)
    if failed is None:
        return {}
    if not failed.is_at_fault:
        raise SparkFailedError(
            f"Archive {archive}: {failed.uri} could not be read: {failed.cause}.", next_step="Nothing is lost; run again."
        ) from problem
    root = spark_uri(archive).rstrip("/")
    named = {place_of(failed.uri), place_of(unquote(failed.uri))}
    bad = {file.path: failed.cause for file in files if any(place_of(f"{root}/{part}") in named for part in _parts(file))}
    # If a whole folder is misnamed, one failed survey per file would take hours.
    return {**bad, **_misnamed(archive, files)} if bad else {}


def _cut_off(archive: str, files: Iterable[ArchivedFile]) -> dict[str, str]:
    """Return by path the files that are cut off, with the reason, where no reader finds it."""
    parts = [(file, part) for file in files for part in _parts(file) if may_end_unseen(part)]
    if not parts:
        return {}
    fs, root = file_system(archive)

    def why(part: str) -> str | None:
        path = f"{root.rstrip('/')}/{part}"
        size = fs.size(path)
        with fs.open(path, "rb") as content:
            return why_cut_off(part, content, size)

    with ThreadPoolExecutor(_READERS) as pool:
        reasons = pool.map(lambda item: why(item[1]), parts)
        return {file.path: found for (file, _), found in zip(parts, reasons, strict=True) if found}


def _parts(file: ArchivedFile) -> Iterator[str]:
    yield file.path
    if file.keys_path:
        yield file.keys_path


def _misnamed(archive: str, files: Iterable[ArchivedFile]) -> dict[str, str]:
    """Return by path the files whose name, or name and first bytes, show that Spark cannot read them."""
    fs, root = file_system(archive)
    with ThreadPoolExecutor(_READERS) as pool:
        parts = [(file, part) for file in files for part in _parts(file)]
        reasons = pool.map(lambda item: _why_misnamed(fs, root, item[1]), parts)
        return {file.path: why for (file, _), why in zip(parts, reasons, strict=True) if why}


def _why_misnamed(fs: FileSystem, root: str, path: str) -> str | None:
    name = path.rpartition("/")[2]
    if is_local(fs) and ":" in name:
        return "Hadoop reads no local file with a colon in its name"
    ending = next((ending for ending in _BEGINNINGS if name.lower().endswith(ending)), None)
    if ending is None:
        return None
    first = fs.cat_file(f"{root.rstrip('/')}/{path}", start=0, end=len(_BEGINNINGS[ending]))
    # Every reader reads an empty file as no lines.
    return f"it is no {ending} file" if first and first != _BEGINNINGS[ending] else None


def _not_what_they_are_named(archive: str, files: Sequence[ArchivedFile], shapes: Sequence[TopicShape]) -> dict[str, str]:
    """Return by path the files that Spark reads without an error although they are not in the format of their names."""
    kinds: dict[str, set[str]] = {}
    for shape in shapes:
        kinds.setdefault(shape.file, set()).add(shape.kind)
    typed = (FileFormat.AVRO, FileFormat.PARQUET)
    broken = [file for file in files if kinds.get(file.path) == {RecordKind.MALFORMED.value}]
    garbage = [file for file in broken if file.format in typed]
    texts = [file for file in broken if file.format not in typed]
    reasons = {file.path: f"it is no {file.format.value.capitalize()} file, and holds no JSON lines" for file in garbage}
    return {**reasons, **_compressed(archive, texts)}


def _compressed(archive: str, files: Sequence[ArchivedFile]) -> dict[str, str]:
    """Return by path the files of lines that no reader decompresses, by their first bytes: their names do not show the format."""
    if not files:
        return {}
    fs, root = file_system(archive)
    with ThreadPoolExecutor(_READERS) as pool:
        begins = pool.map(lambda file: fs.cat_file(f"{root.rstrip('/')}/{file.path}", start=0, end=MOST_MAGIC), files)
        reasons = {file.path: compression_of(first) for file, first in zip(files, begins, strict=True)}
    # By its own ending it is decompressed: then the text inside is no JSON.
    return {
        path: f"it is {how} inside, which its name does not show"
        for path, how in reasons.items()
        if how and not path.lower().endswith(tuple(_BEGINNINGS))
    }
