"""Value shapes by the name in a connector's entry."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_cdc.model.connectors.connector import CDL_JSON, ENVELOPE_OF_A_DOCUMENT, ENVELOPE_OF_A_ROW, Connector
from airflow_cdc.pipeline.decode.huawei_cdl import CdlJson
from airflow_cdc.pipeline.decode.mongodb import DocumentEnvelope
from airflow_cdc.pipeline.decode.value_shape import ValueShape

_SHAPES: Mapping[str, ValueShape] = {
    ENVELOPE_OF_A_ROW: ValueShape(),
    ENVELOPE_OF_A_DOCUMENT: DocumentEnvelope(),
    CDL_JSON: CdlJson(),
}


def shape_of(connector: Connector) -> ValueShape:
    """Return the shape by which a connector's values are decoded."""
    return _SHAPES[connector.values.shape]
