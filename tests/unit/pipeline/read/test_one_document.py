"""Texts that hold one JSON document, or more than that, as Spark's functions are made to see it."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from airflow_cdc.pipeline.read.one_document import END, documents_of, has_lone_surrogate, is_one, sealed, without_lone_surrogates

DOCUMENT = json.dumps({"a": 'x"}{"y', "b": [{"c": {}}, "\\"], "d": "}\u2028{"}, ensure_ascii=False)


def answers(spark: SparkSession, texts: list[str], expression: str) -> list[object]:
    frame = spark.createDataFrame([(number, text) for number, text in enumerate(texts)], "number INT, text STRING")
    return [row["answer"] for row in frame.selectExpr("number", f"{expression} AS answer").orderBy("number").collect()]


BEHIND = ["{}", " x", "\u2028", "\u2028{}", "\x00", ",", "]", "}", "} x", ',"b":1', "\x1e" + DOCUMENT, DOCUMENT, f" {DOCUMENT} ", "//"]


def test_what_follows_a_document_is_seen(spark: SparkSession) -> None:
    whole = [DOCUMENT, f"{DOCUMENT} ", f"  {DOCUMENT}\t ", '{"a":1}']
    parsed = f"from_json({sealed('text')}, '{END} STRING').{END} IS NOT NULL"
    assert answers(spark, whole + [DOCUMENT + text for text in BEHIND], parsed) == [True] * len(whole) + [False] * len(BEHIND)


def test_documents_on_one_line_are_told_apart_outside_of_strings(spark: SparkSession) -> None:
    other, cut = '{"e":"\\\\"}', '{"f":'
    cases = {
        DOCUMENT: [DOCUMENT],
        DOCUMENT + other: [DOCUMENT, other],
        f"{other} {DOCUMENT}\u2028{other}\x1e{DOCUMENT}\u2028": [other, DOCUMENT, other, DOCUMENT],
        f"\ufeff{other}\x00{other}": [other, other],
        f"{other}{cut}": [other, cut],
        # Nothing shows where the first one would have ended.
        f"{cut}{other}": [f"{cut}{other}"],
        f"{other},{other}": [f"{other},{other}"],
        f"{other} x": [f"{other} x"],
        "null": ["null"],
    }
    assert answers(spark, list(cases), documents_of("text")) == list(cases.values())


def test_a_key_is_one_document_or_no_json(spark: SparkSession) -> None:
    good = ['{"id":1}', '{"id":1} ', ' {"schema":{"a":{}},"payload":{"id":1}}', "{}", "abc", "a}{b", "7", '"a b"', '"a\\"b"', "[1]"]
    bad = ['{"id":1}{"id":2}', '{"id":1} x', '{"id":1}}', '{"id":{}},"a":{}', '"a" x', '"a""b"', '{"id":1}\u2028{"id":2}']
    assert answers(spark, good + bad, is_one("text")) == [True] * len(good) + [False] * len(bad)
    assert answers(spark, [""], is_one("CAST(NULL AS STRING)")) == [True]


def test_half_of_a_surrogate_pair_is_seen(spark: SparkSession) -> None:
    good = [r'"\ud83d\ude00x"', r'"\\ud83d"', r'"\ud83d\ude00\uD83D\uDE00"', r'"\u00e9\ud799"', '"😀"']
    bad = [r'"a\ud83d"', r'"\\\ud83d"', r'"\ude00"', r'"\ud83dx\ude00"', r'"\uD83D\uDE00\uDE00"', r'"\ud83d\ud83d\ude00"']
    assert answers(spark, good + bad, has_lone_surrogate("text")) == [False] * len(good) + [True] * len(bad)
    replaced = answers(spark, [*bad, good[0]], without_lone_surrogates("text"))
    fffd = "\ufffd"
    assert replaced[0] == f'"a{fffd}"'
    assert replaced[3] == f'"{fffd}x{fffd}"'
    assert replaced[-1] == good[0]
