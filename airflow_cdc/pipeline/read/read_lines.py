"""Read archived files as lines with their origin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from airflow_cdc.model.archive.archived_files import ArchivedFile, FileFormat
from airflow_cdc.model.columns import FILE, LINE, ORDINAL, RAW, RAW_KEY
from airflow_cdc.pipeline.read.one_document import END, STRICT, documents_of, has_lone_surrogate, without_lone_surrogates
from airflow_cdc.pipeline.read.respell import respelled
from airflow_cdc.pipeline.read.typed_records import is_typed, read_typed
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.uris import spark_uri

_TEXTS = (FileFormat.LINES, FileFormat.JOINED, FileFormat.ARRAY)
_GLOB_CHARACTERS = re.compile(r"([\[\]{}*?\\])")

LINES_SCHEMA = f"{FILE} string, {ORDINAL} struct<block: bigint, row: bigint>, {RAW} string, {RAW_KEY} string, {LINE} bigint"
"""Schema of :func:`read_lines`."""


def read_lines(spark: SparkSession, archive: str, files: Sequence[ArchivedFile], *, numbered: bool = False) -> DataFrame:
    """Read the lines of archived files, each with its file, its order in the file and the companion's key.

    :param archive: URI of the archive's root.
    :param numbered: whether to number the lines; costs a shuffle of the text. Files with companions are numbered anyway.
    :return: one row per non-blank line, as :data:`LINES_SCHEMA`; ``row`` rises within a block of a file, ``block`` within the file.
        Line numbers count from 1 and include blank lines; NULL for lines that were not numbered.
    """
    frames = []
    for form, other_shapes in sorted({(file.format, file.respelled) for file in files}):
        source = _Source(spark, archive, form, other_shapes)
        alike = [file for file in files if (file.format, file.respelled) == (form, other_shapes)]
        plain = [file.path for file in alike if not file.keys_path]
        paired = {file.keys_path: file.path for file in alike if file.keys_path}
        if plain:
            lines = source.read(plain).withColumn(RAW_KEY, F.lit(None).cast("string"))
            frames.append(_number(lines) if numbered else lines.withColumn(LINE, F.lit(None).cast("bigint")))
        if paired:
            frames.append(_read_with_keys(source, paired))
    lines = reduce(DataFrame.unionByName, frames)
    # A length comparison would make Spark count the characters of every line.
    return lines.filter(f"trim({RAW}) <> ''").select(FILE, ORDINAL, RAW, RAW_KEY, LINE)


@dataclass(frozen=True)
class _Source:
    """Reads files of one format as FILE, ORDINAL and RAW."""

    spark: SparkSession
    archive: str
    format: FileFormat
    other_shapes: bool
    """Whether to respell. Skipped if no record needs it, to save the cost of planning."""

    def read(self, paths: Sequence[str]) -> DataFrame:
        frames = [self._texts(paths)] if self.format in _TEXTS else self._typed(paths)
        raw = f"{sql.once(respelled(RAW))} AS {RAW}" if self.other_shapes else RAW
        return reduce(DataFrame.unionByName, frames).selectExpr(
            FILE, f"struct(block, monotonically_increasing_id() AS row) AS {ORDINAL}", raw
        )

    def _texts(self, paths: Sequence[str]) -> DataFrame:
        is_array = self.format is FileFormat.ARRAY
        texts = self.spark.read.text(list(_uris(self.archive, paths).values()), wholetext=is_array)
        texts = texts.selectExpr(*_place(self.archive), f"value AS {RAW}")
        if self.format is FileFormat.JOINED:
            return texts.selectExpr(FILE, "block", f"explode({documents_of(RAW)}) AS {RAW}")
        return texts.selectExpr(FILE, "block", f"explode({_records_of(RAW)}) AS {RAW}") if is_array else texts

    def _typed(self, paths: Sequence[str]) -> list[DataFrame]:
        typed = [path for path in paths if is_typed(self.archive, path, self.format)]
        others = [path for path in paths if path not in typed]
        records = read_typed(self.spark, self.archive, self.format, _uris(self.archive, typed), _place(self.archive))
        return [*([records] if records else []), *([self._texts(others)] if others else [])]


def _records_of(text: str) -> str:
    """Return the SQL of the documents in a JSON array's text; for any other text, the text itself, which no reader accepts as a record."""
    # Wrapped in an object, because the parser ignores anything behind the end of a bare array; or of the object.
    wrapped = f"concat('{{\"records\":', {without_lone_surrogates(text)}, ',\"{END}\":0}}')"
    members, options = f"'records ARRAY<STRING>, {END} STRING, corrupt STRING'", f"map('columnNameOfCorruptRecord', 'corrupt', {STRICT})"
    parsed = f"from_json({wrapped}, {members}, {options})"
    # Parsing replaces invalid UTF-8. A document with the replacement character had such bytes, or may have had: keep its bytes invalid, as
    # this is how it is recognised.
    is_text = f"is_valid_utf8({text}) AND NOT {has_lone_surrogate(text)}"
    kept = f"if({is_text}, record, replace(record, '\ufffd', CAST(X'FF' AS STRING)))"
    documents = f"transform(array_of.records, record -> coalesce({kept}, 'null'))"
    is_whole = f"array_of.corrupt IS NULL AND array_of.records IS NOT NULL AND array_of.{END} IS NOT NULL"
    return sql.let("array_of", parsed, f"if({is_whole}, {documents}, array({text}))")


def _uris(archive: str, paths: Sequence[str]) -> dict[str, str]:
    root = spark_uri(archive).rstrip("/")
    return {path: _GLOB_CHARACTERS.sub(r"\\\1", f"{root}/{path}") for path in paths}


def _place(archive: str) -> list[str]:
    """Return the SQL of a row's path below the archive's root and of its block in the file."""
    # Spark reports file_path percent-encoded; '+' is literal there, so it is escaped before url_decode.
    decoded = "if(contains(_metadata.file_path, '%'), url_decode(replace(_metadata.file_path, '+', '%2B')), _metadata.file_path)"
    root = f"/{_without_scheme(spark_uri(archive)).rstrip('/')}/"
    # Only the scheme precedes the root, and cannot contain it. A regular expression would cost a tenth of the reading time.
    path = f"substring({decoded}, instr({decoded}, {sql.text(root)}) + {len(root)})"
    return [f"{path} AS {FILE}", "_metadata.file_block_start AS block"]


def _without_scheme(uri: str) -> str:
    return re.sub(r"^([A-Za-z0-9]+:)?/*", "", uri)


def _read_with_keys(source: _Source, paired: dict[str, str]) -> DataFrame:
    # The companion's nth line is the key of the nth line, so both sides are numbered before any line is filtered out.
    values = _number(source.read(list(paired.values())))
    keys = _number(source.read(list(paired)))
    companion = F.create_map(*[F.lit(item) for pair in paired.items() for item in pair])
    keys = keys.select(companion[F.col(FILE)].alias(FILE), LINE, F.expr(_KEY_OF_LINE).alias(RAW_KEY))
    return values.join(keys, [FILE, LINE], "left")


# As for a whole record's key: null is no key, and text loses its quotes. Invalid UTF-8 must stay invalid.
_KEY_OF_LINE = f"""CASE WHEN trim({RAW}) IN ('', 'null') THEN NULL
    WHEN ltrim({RAW}) LIKE '"%' AND is_valid_utf8({RAW}) THEN get_json_object(concat('{{"key":', {RAW}, '}}'), '$.key') ELSE {RAW} END"""


def _number(lines: DataFrame) -> DataFrame:
    in_file = Window.partitionBy(FILE).orderBy(ORDINAL)
    return lines.withColumn(LINE, F.row_number().over(in_file).cast("bigint"))


def file_literal(files: Sequence[ArchivedFile], attribute: str, kind: str) -> str:
    """Return the SQL of an attribute (by name) of the line's file, as type ``kind``."""
    values = {file.path: getattr(file, attribute) for file in files}
    if len(set(values.values())) == 1:
        only = next(iter(values.values()))
        return f"CAST({'NULL' if only is None else sql.text(str(only))} AS {kind})"
    pairs = ", ".join(f"{sql.text(path)}, {sql.text(str(value))}" for path, value in values.items() if value is not None)
    return f"CAST(try_element_at(map({pairs}), {FILE}) AS {kind})"
