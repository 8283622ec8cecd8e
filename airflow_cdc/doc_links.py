"""Links from a Dag to the documentation pages that a person on call needs."""

from __future__ import annotations

PROJECT_URL = "https://github.com/airflow-cdc/airflow-cdc"
"""The project's URL; ``[project.urls]`` in pyproject.toml has the same."""
_TITLES = {
    "how-to/backfill.md": "Backfill a year",
    "how-to/maintenance.md": "Maintenance",
    "how-to/many-tables.md": "Many tables",
    "how-to/rebuild-and-reprocess.md": "Rebuild and reprocess",
    "how-to/replay-quarantine.md": "Replay the quarantine",
    "how-to/when-something-is-red.md": "When something is red",
    "reference/dags-file.md": "Dags file",
    "reference/sensors.md": "Sensors and the watcher",
}
"""By path below ``docs/``: the page's title."""
_FIRST = "how-to/when-something-is-red.md"


def page_url(page: str) -> str:
    """Return the URL of a page, given its path below ``docs/``."""
    return f"{PROJECT_URL}/blob/main/docs/{page}"


def with_links(text: str | None, *pages: str) -> str:
    """Return a Dag's text with Markdown links to documentation pages below it, starting with the page for failures.

    :param text: the Dag's purpose, such as the Dag file's docstring.
    :param pages: paths below ``docs/``, of pages about the Dag's own work.
    """
    links = " · ".join(f"[{_TITLES[page]}]({page_url(page)})" for page in (_FIRST, *pages))
    return f"{(text or '').rstrip()}\n\nDocumentation: {links}\n"
