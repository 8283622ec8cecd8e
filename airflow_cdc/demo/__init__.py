"""The demo: a small shop's change events become Delta tables, through a Dag that a real Airflow runs."""

from __future__ import annotations

from airflow_cdc.demo.run_demo import run_demo

__all__ = ["run_demo"]
