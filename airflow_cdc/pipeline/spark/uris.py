"""URIs as Spark's file systems spell them."""

from __future__ import annotations

import re


def spark_uri(uri: str) -> str:
    """Return a URI as Spark's file systems spell it (``s3`` is Hadoop's ``s3a``)."""
    return re.sub(r"^s3n?://", "s3a://", uri)
