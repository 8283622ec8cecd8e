"""URIs for Spark's file systems."""

from __future__ import annotations

import re


def spark_uri(uri: str) -> str:
    """Return a URI for Spark's file systems (``s3`` is Hadoop's ``s3a``)."""
    return re.sub(r"^s3n?://", "s3a://", uri)
