"""Value shapes: what the decoder does otherwise for each shape of a value that a connector's entry may name."""

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
    """Return how a connector's values are decoded."""
    return _SHAPES[connector.values.shape]
