"""The documentation as a site: what is written for its builder, and what is found wrong with what it built."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from airflow_cdc import doc_links

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    """Return a program of ``scripts/``, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look for their module there.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


check = script("docs_check")
pages = script("docs_pages")


# What is written for the builder


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("docs")
    pages.write_pages(ROOT, folder)
    return folder


def titles_and_places(nav: Any) -> list[tuple[str, str]]:
    entries: list[tuple[str, str]] = []
    for item in nav:
        for title, below in item.items():
            entries += [(title, below)] if isinstance(below, str) else titles_and_places(below)
    return entries


def test_every_page_stands_in_the_navigation_exactly_once() -> None:
    places = pages.place_of_sources(ROOT)
    named = [place for _, place in titles_and_places(pages.navigation(ROOT, places))]
    assert sorted(named) == sorted(place for place in places.values() if place.endswith(".md"))


def test_the_sections_are_those_of_the_index() -> None:
    nav = pages.navigation(ROOT, pages.place_of_sources(ROOT))
    sections = [title for item in nav for title in item]
    assert sections == ["Home", "Tutorial", "How-to", "Reference", "Explanation", "Sources", "Decisions", "Project", "Example Dags"]


def test_every_link_of_a_written_page_leads_to_a_written_page(written: Path) -> None:
    root = written / "pages"
    broken = []
    for page in root.rglob("*.md"):
        for _, _, path, _ in pages._LINK.findall(pages._FENCE.sub("", page.read_text(encoding="utf-8"))):
            if path and "://" not in path and not (page.parent / path).is_file():
                broken.append(f"{page.relative_to(root)}: {path}")
    assert broken == []
    assert len(list(root.rglob("*.md"))) > 60


def test_links_out_of_the_docs_lead_to_the_pages_made_of_their_files(tmp_path: Path) -> None:
    page, readme, dag = tmp_path / "docs/how-to/backfill.md", tmp_path / "README.md", tmp_path / "dags/cdc_merge.py"
    page.parent.mkdir(parents=True)
    page.write_text(
        "[`dags/cdc_merge.py`](../../dags/cdc_merge.py), [README](../../README.md#one-dag), [license](../../LICENSE), "
        "[Delta](https://delta.io), [below](#below)\n```\n[kept](../../README.md)\n```\n"
    )
    places = {page: "how-to/backfill.md", readme: "project/overview.md", dag: "dags/cdc_merge.py.md"}

    assert pages.with_links_of_the_site(page, places) == (
        "[`dags/cdc_merge.py`](../dags/cdc_merge.py.md), [README](../project/overview.md#one-dag), license, "
        "[Delta](https://delta.io), [below](#below)\n```\n[kept](../../README.md)\n```\n"
    )


def test_the_settings_carry_the_navigation_and_load_no_fonts(written: Path) -> None:
    settings = (written / "zensical.toml").read_text(encoding="utf-8")
    nav = re.search(r"^nav = (.+)$", settings, re.MULTILINE)
    assert nav
    # Its one difference from JSON is the sign between a name and its value.
    assert json.loads(nav[1].replace('" = ', '": ')) == pages.navigation(ROOT, pages.place_of_sources(ROOT))
    assert re.search(r"^font = false$", settings, re.MULTILINE)


def test_pages_refuse_what_other_hosts_would_load_into_them(written: Path) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', (written / "overrides/main.html").read_text(encoding="utf-8"))
    assert policy
    allowed = {source for rule in policy[1].split(";") for source in rule.split()[1:]}
    assert allowed == {"'self'", "'unsafe-inline'", "data:", "blob:"}


def test_addresses_that_the_package_links_lead_to_the_pages(tmp_path: Path) -> None:
    for page in doc_links._TITLES:
        (tmp_path / page.removesuffix(".md")).mkdir(parents=True)
        (tmp_path / page.removesuffix(".md") / "index.html").touch()
    pages.write_redirects(tmp_path, [*doc_links._TITLES, "index.md", "reference/report.schema.json"])

    assert check.problems(tmp_path) == []
    for page in doc_links._TITLES:
        (target,) = re.findall(r"url=([^\"]+)", (tmp_path / page / "index.html").read_text(encoding="utf-8"))
        assert (tmp_path / page / target / "index.html").resolve() == tmp_path / page.removesuffix(".md") / "index.html"
    assert not (tmp_path / "index.md").exists()


# What is wrong with a built site

SOUND = """\
<html><head><link rel="canonical" href="https://example.org/"><link rel="stylesheet" href="a.css"><script src="b.js"></script></head>
<body><h2 id="here">Here</h2><a href="#here">here</a><a href="https://delta.io">outside</a><a href="other/#there">there</a></body></html>"""


def site(folder: Path, **files: str) -> Path:
    (folder / "other").mkdir()
    for path, text in {"index.html": SOUND, "other/index.html": '<h2 id="there">There</h2>', "a.css": "a {color: red}", **files}.items():
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def test_a_sound_site_has_no_problems(tmp_path: Path) -> None:
    assert check.problems(site(tmp_path)) == []


FOREIGN = [
    '<script src="https://cdn.example.org/x.js"></script>',
    '<link rel="stylesheet" href="https://fonts.example.org/css">',
    '<link rel="preconnect" href="https://fonts.example.org">',
    '<img src="//img.example.org/x.png">',
    '<img srcset="x.png 1x, https://img.example.org/x.png 2x">',
    '<iframe src="http://example.org"></iframe>',
    '<style>@import "https://fonts.example.org/css";</style>',
    '<p style="background: url(https://img.example.org/x.png)"></p>',
    '<pre class="mermaid">a</pre>',
]


@pytest.mark.parametrize("element", FOREIGN)
def test_whatever_a_page_loads_from_another_host_is_found(tmp_path: Path, element: str) -> None:
    (problem,) = check.problems(site(tmp_path, **{"index.html": element}))
    assert problem.startswith("index.html: loads ")


def test_what_a_stylesheet_loads_from_another_host_is_found(tmp_path: Path) -> None:
    sheet = '@font-face {src: url("https://fonts.example.org/a.woff2")} p {background: url(data:image/png;base64,AA)}'
    assert check.problems(site(tmp_path, **{"a.css": sheet})) == ["a.css: loads https://fonts.example.org/a.woff2"]


def test_links_to_pages_and_headings_that_are_not_there_are_found(tmp_path: Path) -> None:
    page = '<a href="gone/">gone</a><a href="other/#gone">gone</a><a href="#gone">gone</a>'
    assert check.problems(site(tmp_path, **{"index.html": page})) == [
        "index.html: leads to gone/, which is not there",
        "index.html: leads to other/#gone, a heading that is not there",
        "index.html: leads to #gone, a heading that is not there",
    ]
