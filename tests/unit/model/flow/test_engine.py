"""Which engine a flow is merged by: its own setting, else the document's, unless the run names one."""

from __future__ import annotations

import pytest

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.engine import Engine, engine_of
from airflow_cdc.model.flow.routes import flows_from_document, settings_of


def test_a_flow_s_own_engine_goes_before_the_document_s() -> None:
    flows = flows_from_document({"engine": "spark", "flows": [{"topic": "a", "engine": "native"}, {"topic": "b"}]})
    assert [settings_of(flows, topic).engine for topic in ("a", "b", "never named")] == [Engine.NATIVE, Engine.SPARK, Engine.SPARK]
    assert settings_of(flows_from_document([{"topic": "a"}]), "a").engine is None


@pytest.mark.parametrize("wrong", ["duckdb", "AUTO", True, None])
def test_an_engine_that_does_not_exist_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=r"engine is .*, expected one of"):
        flows_from_document({"engine": wrong, "flows": [{"topic": "a"}]})


@pytest.mark.parametrize(("text", "engine"), [(None, None), ("", None), *((each.value, each) for each in Engine)])
def test_a_setting_names_an_engine_or_none(text: str | None, engine: Engine | None) -> None:
    assert engine_of(text) is engine


def test_a_setting_that_names_no_engine_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ConfigurationError, match=r"engine is 'duck', expected one of \['auto', 'spark', 'native'\]"):
        engine_of("duck")
