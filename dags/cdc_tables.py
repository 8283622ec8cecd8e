"""Apply archived change events to Delta tables by the Dags that ``airflow_cdc.yaml`` asks for, beside this file.

It needs the connections that the file names, and its pools:
``airflow pools set cdc_prices 1 "one merge" --include-deferred``.
"""

from __future__ import annotations

# [START howto_cdc_tables]
from pathlib import Path

from airflow_cdc.dag_factory import cdc_dags

globals().update(cdc_dags(Path(__file__).with_name("airflow_cdc.yaml")))
# [END howto_cdc_tables]
