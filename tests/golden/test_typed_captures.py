"""The captures of every type and of tables whose columns come and go, judged whole by the databases' own final rows."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from tests.conftest import Apply
from tests.golden.printed_values import AS_PRINTED, NUMERALS, as_printed
from tests.support.tables import read_rows

pytestmark = pytest.mark.both_engines

CAPTURES = Path(__file__).parent / "captures"

UNAVOIDABLE = {
    # Columns whose values differ, each with the reason (docs/reference/known-differences.md).
    "pg_types_precise": {
        "evolve_untouched": {"z": "ADD COLUMN … DEFAULT fills rows without an event"},
        "nametype": {"nm": "the type name is streamed as null"},
        "special": dict.fromkeys(("ts", "tstz", "d"), "a snapshot reads dates before 1582 by another calendar"),
        "toasty_num": {"num": "a large numeric that an update left out is null"},
    },
    "maria_types_precise": {
        "evolve_untouched": {"z": "ADD COLUMN … DEFAULT fills rows without an event"},
        "typ": {
            "c_f": "a snapshot rounds FLOAT to six digits",
            "c_enum": "the stream escapes the comma of a value",
            "c_uuid": "the stream shifts the bytes of a UUID that ends in zeros",
            "c_ts": "the stream has 1970-01-01 for 0000-00-00 in a column that a snapshot reads as null",
        },
    },
}
SCHEMAS = {
    # Columns that one of the two tables lacks: dropped ones stay, and final rows know only the last schema.
    "pg_types_precise": {"evolve": ("b: string / absent", "gone: string / boolean"), "gen": ("b: int / absent",)},
    "maria_types_precise": {"evolve": ("f: timestamp / absent", "gone: string / boolean")},
}
REJECTED = {
    # Of both: infinity, and dates outside of the years 1 to 9999; a snapshot reads 0001-01-01 as a day of the year 0.
    "pg_types_precise": {"archive": {"special": 5}, "final": {"special": 6}},
    "maria_types_precise": {"archive": {}, "final": {}},
}


@pytest.mark.deep
@pytest.mark.parametrize("capture", UNAVOIDABLE)
def test_only_what_no_consumer_can_know_differs_from_the_database(capture: str, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    reports = {side: apply(CAPTURES / capture / side / "schema", tmp_path / side) for side in ("archive", "final")}

    found = compare_lakes(spark, str(tmp_path / "archive"), str(tmp_path / "final"))

    assert len(found.tables) == len(list((CAPTURES / capture / "final/schema").iterdir()))
    by_table = {table.flow.rsplit(".", 1)[-1]: table for table in found.tables}
    assert {name: set(table.values) for name, table in by_table.items() if table.values} == {
        name: set(columns) for name, columns in UNAVOIDABLE[capture].items()
    }
    assert {name: tuple(sorted(table.schema)) for name, table in by_table.items() if table.schema} == SCHEMAS[capture]
    rejected = {
        side: {flow.flow.rsplit(".", 1)[-1]: flow.events.rejected for flow in report.flows if flow.events.rejected}
        for side, report in reports.items()
    }
    assert rejected == REJECTED[capture]
    more = {name: table.only_left - table.only_right for name, table in by_table.items() if table.only_left != table.only_right}
    assert more == {name: rejected["final"][name] - count for name, count in rejected["archive"].items()}
    assert [name for name, table in by_table.items() if not (table.equal or table.values or table.schema)] == []


NOT_AS_PRINTED: dict[str, dict[str, int]] = {
    "pg_types_precise/typ": {},
    "pg_types_precise/arr": {},
    # As in UNAVOIDABLE.
    "maria_types_precise/typ": {"c_f": 43, "c_enum": 13, "c_uuid": 1, "c_ts": 1},
}


@pytest.mark.parametrize(
    "table", [pytest.param(name, marks=[] if name == "pg_types_precise/arr" else pytest.mark.deep) for name in NOT_AS_PRINTED]
)
def test_every_value_is_the_one_that_the_database_prints(table: str, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    capture, name = table.split("/")
    apply(CAPTURES / capture / "archive/schema", tmp_path, tables=(f"*.{name}",))
    (flow,) = {path.name.removesuffix(".jsonl.gz") for path in (CAPTURES / capture / "archive/schema").glob(f"*.{name}.jsonl.gz")}
    found = read_rows(spark, str(tmp_path), flow)
    expected = {int(row["id"]): row for row in json.loads((CAPTURES / capture / "expected" / f"{name}.json").read_text())}

    assert {row["id"] for row in found.rows} == set(expected)
    wrong: dict[str, list[tuple[Any, ...]]] = {}
    for row in found.rows:
        for column, value in row.items():
            text = expected[row["id"]][column]
            pair = (value, None if text is None else as_printed(text, found.columns[column], AS_PRINTED.get((capture, column))))
            if (capture, column) in NUMERALS and text is not None:
                pair = (Decimal(value).normalize(), Decimal(text).normalize())
            if repr(pair[0]) != repr(pair[1]):
                wrong.setdefault(column, []).append((row["id"], *pair))
    assert {column: len(values) for column, values in wrong.items()} == NOT_AS_PRINTED[table], {
        column: values[:3] for column, values in wrong.items()
    }
