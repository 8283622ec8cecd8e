"""docs_pages: the repository's Markdown as pages of the site. Links between them stay links; files that are no pages lose theirs."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

_INDEX = "docs/README.md"
_SITE = "docs/site"
_PROJECT = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
_FENCE = re.compile(r"(^ *```.*?^ *``` *$\n?)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_DRAWING = re.compile(r"^```mermaid\n.*?^```\n", re.MULTILINE | re.DOTALL)
_LANGUAGE = {".py": "python", ".yaml": "yaml"}


def place_of_sources(root: Path) -> dict[Path, str]:
    """Return where each file of the repository stands in the site, by its path: what is not in it is no page.

    :param root: of the repository.
    """
    docs = root / "docs"
    pages = {page: str(page.relative_to(docs)) for page in sorted(docs.rglob("*")) if page.suffix in {".md", ".json", ".png", ".svg"}}
    pages[root / _INDEX] = "index.md"
    pages.update({root / name: f"project/{name.lower()}" for name in _PROJECT})
    pages[root / "README.md"] = "project/overview.md"
    pages.update({dag: f"dags/{dag.name}.md" for dag in sorted((root / "dags").iterdir()) if dag.suffix in _LANGUAGE})
    return pages


def write_pages(root: Path, folder: Path) -> None:
    """Write everything that the site is built from into an empty folder: pages, settings, styles.

    :param root: of the repository.
    """
    shutil.rmtree(folder, ignore_errors=True)
    places = place_of_sources(root)
    pages = folder / "pages"
    for source, place in places.items():
        target = pages / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix in _LANGUAGE:
            target.write_text(page_of_program(source), encoding="utf-8")
        elif source.suffix == ".md":
            target.write_text(with_links_of_the_site(source, places), encoding="utf-8")
        else:
            shutil.copy(source, target)
    shutil.copytree(root / _SITE / "overrides", folder / "overrides")
    shutil.copytree(root / _SITE / "assets", pages / "assets", dirs_exist_ok=True)
    settings = (root / _SITE / "zensical.toml").read_text(encoding="utf-8")
    nav = as_toml(navigation(root, places))
    (folder / "zensical.toml").write_text(settings.replace("nav = []\n", f"nav = {nav}\n", 1), encoding="utf-8")


def write_redirects(site: Path, places: Iterable[str]) -> None:
    """Let addresses that end like the source's file, such as ``how-to/backfill.md``, lead to the page.

    The package links pages by these (airflow_cdc/doc_links.py), because a repository's host has them so.
    """
    for place in places:
        if place.endswith(".md") and place != "index.md":
            name = Path(place).stem
            redirect = site / place / "index.html"
            redirect.parent.mkdir()
            redirect.write_text(
                f'<!doctype html><title>{name}</title><meta http-equiv="refresh" content="0; url=../{name}/">\n'
                f'<a href="../{name}/">{name}</a>\n',
                encoding="utf-8",
            )


def page_of_program(source: Path) -> str:
    """Return the page that shows an example file; its first heading is the file's name."""
    text = source.read_text(encoding="utf-8")
    described = (ast.get_docstring(ast.parse(text)) or "").split("\n\n", 1)[0] if source.suffix == ".py" else ""
    return f"# {source.name}\n\n{described}\n\n```{_LANGUAGE[source.suffix]}\n{text}```\n"


def with_links_of_the_site(source: Path, places: dict[Path, str]) -> str:
    """Return a page's Markdown with the links as they are in the site.

    Mermaid's drawings are left out: the script that draws them would come from another host.
    """
    here = Path(places[source]).parent

    def link(found: re.Match[str]) -> str:
        mark, text, path, anchor = found[1], found[2], found[3], found[4] or ""
        if not path or "://" in path or path.startswith("mailto:"):
            return found[0]
        place = places.get((source.parent / path).resolve())
        if place is None:
            # What is no page, such as the license, has no place to lead to.
            return "" if mark else text
        return f"{mark}[{text}]({os.path.relpath(place, here)}{anchor})"

    parts = _FENCE.split(_DRAWING.sub("", source.read_text(encoding="utf-8")))
    return "".join(part if number % 2 else _LINK.sub(link, part) for number, part in enumerate(parts))


def navigation(root: Path, places: dict[Path, str]) -> list[object]:
    """Return the site's navigation from the index: a section for each heading, with the pages that are linked below it."""
    index = root / _INDEX
    nav: list[object] = [{"Home": "index.md"}]
    section: list[object] = nav
    for level, title, path in _index_entries(index):
        if level == 2:
            section = group = []
            nav.append({title: section})
        elif level == 3:
            group = []
            section.append({title: group})
        elif place := places.get((index.parent / path).resolve()):
            group.append({title: place})
    programs: list[object] = [{Path(place).stem: place} for place in places.values() if place.startswith("dags/")]
    nav.append({"Example Dags": programs})
    return nav


def _index_entries(index: Path) -> Iterator[tuple[int, str, str]]:
    """Yield headings as (level, title, ""), and the links below the first heading as (0, text, path)."""
    _, _, below = index.read_text(encoding="utf-8").partition("\n## ")
    for line in f"## {below}".splitlines():
        if heading := re.match(r"(##|###) (.+)", line):
            yield len(heading[1]), heading[2], ""
        else:
            yield from ((0, text, path) for _, text, path, _ in _LINK.findall(line))


def as_toml(value: object) -> str:
    """Return lists, mappings and texts as an inline value of TOML."""
    if isinstance(value, list):
        return f"[{', '.join(as_toml(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {as_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
