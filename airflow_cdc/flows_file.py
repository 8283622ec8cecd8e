"""The flows file: settings of flows and routes, in YAML or JSON (docs/reference/flows-file.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import fsspec
import yaml

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.routes import flows_from_document


def read_flows(path: Path | str | None) -> Mapping[str, CdcFlow]:
    """Return a flows file's settings by topic (YAML or JSON; a path or a URI); empty where no file is given.

    A text that begins with a brace is the file's content: a Dag may pass settings to a driver that shares no disk with it.

    :raises ConfigurationError: when the file cannot be read as flows.
    """
    if path is None:
        return {}
    try:
        if str(path).startswith("{"):
            return flows_from_document(json.loads(str(path)))
        with fsspec.open(str(path), "rt", encoding="utf-8") as file:
            document = yaml.safe_load(file)
    except (OSError, ValueError, ImportError, yaml.YAMLError) as error:
        raise ConfigurationError(f"The flows file {path} cannot be read: {error}.", next_step="Correct the path or the file.") from error
    return flows_from_document(document)
