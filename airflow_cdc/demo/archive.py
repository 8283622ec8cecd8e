"""Archive files as Kafka sinks leave them: one line per record."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any
