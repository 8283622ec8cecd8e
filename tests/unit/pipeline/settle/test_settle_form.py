"""The texts of a column that identifies rows have one form in a table; where they could have two, the flow stops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from airflow_cdc.model.errors import SchemaChangeError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.pipeline.decode.types.connect_types import column_type
from airflow_cdc.pipeline.decode.types.text_forms import TEXT, TIME, TextForm
from airflow_cdc.pipeline.settle.settle_form import Forms
from airflow_cdc.pipeline.survey.archived_schemas import ArchivedFields
from airflow_cdc.pipeline.target.target_table import TargetTable

MILLIS = {"type": "int32", "name": "io.debezium.time.Time"}
MICROS, NANOS = ({"type": "int64", "name": f"io.debezium.time.{unit}Time"} for unit in ("Micro", "Nano"))
WORDS, NUMBER, AMOUNT = (
    {"type": "string"},
    {"type": "int32"},
    {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2", "connect.decimal.precision": "10"},
    },
)
Field = Mapping[str, Any]
TIME_3, TIME_6, TIME_9 = (TextForm(TIME, digits) for digits in (3, 6, 9))
PLAIN, DECLARED = CdcFlow("t"), CdcFlow("t", columns={"id": "STRING"})


def table(form: TextForm | None = None) -> TargetTable:
    forms = {"id": form} if form else {}
    return TargetTable(uri="/lake/t", columns={"id": "STRING"}, keys=("id",), size=0, files=0, deletion_vectors=False, forms=forms)


def settled(
    now: Sequence[Field],
    *,
    archived: Sequence[Field] = (),
    held: TargetTable | None = None,
    flow: CdcFlow = PLAIN,
    without_key: bool = False,
) -> TextForm:
    fields = tuple({**each, "field": "id"} for each in (*now, *archived))
    known = Forms(flow=flow, table=held, archived=lambda _: ArchivedFields({"id": fields}), connector="", without_key=without_key)
    return known.of("id", [column_type({**each, "field": "id"}, "") for each in now])


def test_a_new_table_has_the_finest_form_that_the_archive_shows() -> None:
    """A table that is made anew takes the whole archive, one microbatch after the other."""
    assert settled([MILLIS]) == TIME_3
    assert settled([MILLIS], archived=[MICROS]) == TIME_6
    assert settled([MILLIS, NANOS], archived=[MICROS]) == TIME_9
    assert settled([WORDS], archived=[MICROS]) == TEXT


def test_a_table_keeps_its_form_and_coarser_values_take_it() -> None:
    assert settled([MILLIS], held=table(TIME_6)) == TIME_6
    assert settled([MICROS, MILLIS], archived=[NANOS], held=table(TIME_6)) == TIME_6


@pytest.mark.parametrize("flow", [PLAIN, DECLARED])
def test_finer_values_than_the_table_s_stop_the_flow(flow: CdcFlow) -> None:
    with pytest.raises(
        SchemaChangeError, match=r"column id of table /lake/t .* are of form TIME\(3\) \(seen: TIME\(3\), TIME\(6\)\)"
    ) as found:
        settled([MICROS], held=table(TIME_3), flow=flow)
    assert "airflow-cdc retype t" in found.value.next_step


def test_a_table_without_a_record_has_the_form_of_the_archive_if_that_is_one() -> None:
    """Those of an earlier version, in which each text had the form of its event."""
    assert settled([MICROS], held=table()) == TIME_6
    for archived in (MILLIS, NANOS):
        with pytest.raises(SchemaChangeError, match="may be of several forms"):
            settled([MICROS], archived=[archived], held=table())
    # Texts and whole numbers are what they were.
    assert settled([WORDS, NUMBER], archived=[AMOUNT], held=table()) == TEXT


@pytest.mark.parametrize(
    ("now", "held"), [([MICROS], table()), ([WORDS], table(TIME_6)), ([AMOUNT], table(TIME_6)), ([WORDS, MICROS], None)]
)
def test_texts_of_several_kinds_are_for_a_person_to_allow(now: list[Field], held: TargetTable | None) -> None:
    with pytest.raises(SchemaChangeError, match="are of several kinds") as found:
        settled(now, archived=[WORDS], held=held)
    assert "declare STRING" in found.value.next_step
    assert settled(now, archived=[WORDS], held=held, flow=DECLARED) == TIME_6


def test_rows_without_a_key_are_known_by_all_their_texts() -> None:
    with pytest.raises(SchemaChangeError, match="are of form"):
        settled([MICROS], held=table(TIME_3), without_key=True)
    # The report counts rows that are not found.
    assert settled([WORDS], held=table(TIME_3), without_key=True) == TIME_3
