"""docs_llms: ``llms.txt``, the site's pages as a list for programs that read (https://llmstxt.org): a link and a sentence for each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs_pages import navigation, place_of_sources

_KIND = re.compile(r"^(?:Tutorial|How-to|Reference|Explanation|Overview|Index|Record)[.:] ")
"""What a page is, which its section says already."""
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_SENTENCE = re.compile(r"^.+?\.(?= |$)")
_NO_PROSE = ("#", "```", "|", "<!--", "![", ">", "- ", "1. ")


def llms_text(root: Path) -> str:
    """Return the text of ``llms.txt``. Its links are relative to the site's root.

    :param root: of the repository.
    """
    places = place_of_sources(root)
    sources = {place: source for source, place in places.items()}
    lines = ["# airflow-cdc", "", f"> {plain(paragraphs((root / 'README.md').read_text(encoding='utf-8'))[1])}"]
    nav: list[Any] = navigation(root, places)
    for entry in nav:
        for section, below in entry.items():
            # The index itself is no section.
            if isinstance(below, list):
                lines += ["", f"## {section}", "", *(link(title, place, sources[place]) for title, place in pages_of(below))]
    return "\n".join([*lines, ""])


def pages_of(below: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield the pages of a section and its groups: title and place."""
    for item in below:
        for title, content in item.items():
            if isinstance(content, list):
                yield from pages_of(content)
            else:
                yield title, content


def link(title: str, place: str, source: Path) -> str:
    """Return a page's line: its link, and the first sentence of its first paragraph where it has one."""
    described = summary(source)
    return f"- [{title}]({place.removesuffix('.md')}/)" + (f": {described}" if described else "")


def summary(source: Path) -> str:
    """Return the first sentence that says something of a page, without what kind of page it is."""
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    elif source.suffix != ".md":
        text = ""
    # A decision's first paragraph may be one word, such as "Accepted."
    found = next((paragraph for paragraph in paragraphs(text) if " " in paragraph), "")
    said = _KIND.sub("", plain(found).replace("``", "`"))
    sentence = _SENTENCE.match(said)
    said = sentence[0] if sentence else said.rstrip(":")
    return said[:1].upper() + said[1:]


def paragraphs(text: str) -> list[str]:
    """Return a page's paragraphs of prose, each on one line."""
    found = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return [part for part in found if part and not part.startswith(_NO_PROSE)]


def plain(text: str) -> str:
    """Return Markdown without its links, whose addresses are relative to another page."""
    return _LINK.sub(r"\1", text)
