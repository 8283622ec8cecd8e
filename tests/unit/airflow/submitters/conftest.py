"""Tests with the providers of other services' operators: ``make test-submitters`` has an environment with them, and no other has.

Without all of them nothing here is collected, and that target fails, because pytest then runs no test.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import pytest

PROVIDERS = ("amazon", "cncf-kubernetes", "databricks", "google")


def _is_installed(provider: str) -> bool:
    try:
        return bool(version(f"apache-airflow-providers-{provider}"))
    except PackageNotFoundError:
        return False


_THERE = [provider for provider in PROVIDERS if _is_installed(provider)]
collect_ignore_glob = [] if len(_THERE) == len(PROVIDERS) else ["test_*.py"]


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Airflow variables of the Dags."""
    values = {
        "cdc_code": "s3://code",
        "cdc_emr_application": "00f1example",
        "cdc_emr_role": "arn:aws:iam::123456789012:role/cdc",
        "cdc_emr_logs": "s3://logs/emr",
        "cdc_emr_cluster": "j-1EXAMPLE",
        "cdc_glue_role": "arn:aws:iam::123456789012:role/cdc-glue",
        "cdc_project": "shop",
        "cdc_region": "europe-west1",
        "cdc_cluster": "etl",
        "cdc_runtime": "18.1.x-scala2.13",
        "cdc_node_type": "i3.xlarge",
        "cdc_instance_profile": "arn:aws:iam::123456789012:instance-profile/cdc",
        "cdc_image": "registry.example.com/cdc:1",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"AIRFLOW_VAR_{name.upper()}", value)
