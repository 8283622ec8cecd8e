"""docs_check: what a built site must not do: load anything from another host, or link to what is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_SOURCES = dict.fromkeys(("script", "img", "source", "iframe", "video", "audio", "embed"), "src") | {"object": "data"}
"""Attribute by which an element loads a file."""
_NOT_LOADING = {"canonical", "prev", "next", "alternate", "author", "license"}
"""Relations of a ``link`` element that only name another page."""
_IN_STYLES = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")
_DRAWN_ELSEWHERE = {"mermaid", "glightbox", "pyodide"}
"""Classes for which the theme's script loads another one from a host of its own."""


@dataclass
class Page:
    """What a page of the site holds."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    """Targets of the links that a reader follows."""
    loaded: list[str] = field(default_factory=list)
    """Addresses that a browser loads by itself."""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        self.page.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.page.links.append(given["href"])
        if tag == "link" and not set(given.get("rel", "").split()) <= _NOT_LOADING:
            self.page.loaded.append(given.get("href", ""))
        if given.get(_SOURCES.get(tag, "")):
            self.page.loaded.append(given[_SOURCES[tag]])
        self.page.loaded += [part.split()[0] for part in given.get("srcset", "").split(",") if part.strip()]
        self.page.loaded += styles(given.get("style", ""))
        self.page.loaded += [f"//{name}" for name in sorted(_DRAWN_ELSEWHERE & set(given.get("class", "").split()))]

    def handle_endtag(self, tag: str) -> None:
        self._in_style = self._in_style and tag != "style"

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.page.loaded += styles(data)


def styles(text: str) -> list[str]:
    """Return the addresses that style rules load."""
    return [url or imported for url, imported in _IN_STYLES.findall(text)]


def read_page(text: str) -> Page:
    """Return what a page holds, from its HTML."""
    reader = _Reader()
    reader.feed(text)
    return reader.page


def problems(site: Path) -> list[str]:
    """Return what is wrong with a built site, a line each.

    A browser would load a file from another host; or a link leads to a page or a heading that the site has not.
    """
    pages = {path: read_page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = [f"{path.relative_to(site)}: loads {url}" for path, page in pages.items() for url in page.loaded if is_foreign(url)]
    for sheet in sorted(site.rglob("*.css")):
        found += [f"{sheet.relative_to(site)}: loads {url}" for url in styles(sheet.read_text(encoding="utf-8")) if is_foreign(url)]
    return [*found, *_broken_links(site, pages)]


def is_foreign(url: str) -> bool:
    """Return whether an address is of another host."""
    parts = urlsplit(url.strip())
    return bool(parts.netloc) or parts.scheme in {"http", "https", "ws", "wss"}


def _broken_links(site: Path, pages: dict[Path, Page]) -> Iterator[str]:
    for path, page in pages.items():
        if path.name == "404.html":
            # Shown in place of any page: its links start at the host's root, wherever the site is.
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{path.relative_to(site)}: leads to {link}, which is not there"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{path.relative_to(site)}: leads to {link}, a heading that is not there"
