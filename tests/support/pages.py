"""What a page of the docs has a reader type."""

from __future__ import annotations

import re
from pathlib import Path

HOW_TO = Path(__file__).parents[2] / "docs/how-to"


def blocks(page: str) -> list[str]:
    """Return the texts between fences in a how-to page, in their order."""
    text = (HOW_TO / page).read_text(encoding="utf-8")
    return re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)


def commands(page: str, program: str) -> list[list[str]]:
    """Return the commands of a program in a how-to page, by block."""
    found = [re.findall(rf"^ *({re.escape(program)} .+)$", block, re.MULTILINE) for block in blocks(page)]
    return [lines for lines in found if lines]
