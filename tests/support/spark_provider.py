"""What the installed Spark provider can do."""

from __future__ import annotations

import pytest

from airflow_cdc.operators.left_job import PROVIDER_FOLLOWS_JOBS

follows_jobs = pytest.mark.skipif(not PROVIDER_FOLLOWS_JOBS, reason="this Spark provider cannot follow a cluster's job (older than 6.3)")
"""Of a test of what is switched off with an older one; `make test-min-versions` has such a one, and nothing else."""
