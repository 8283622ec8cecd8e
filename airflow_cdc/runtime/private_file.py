"""write_privately: write secrets for another process."""

from __future__ import annotations

import os
from pathlib import Path


def write_privately(path: Path, text: str) -> None:
    """Write a new file that only this user can read.

    :raises FileExistsError: when the file exists.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
