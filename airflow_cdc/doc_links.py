"""The documentation pages that a person on call needs, named or linked in the text of a Dag.

Where the pages are published is the installation's own setting: ``[airflow_cdc] docs_url`` in Airflow's configuration.
"""

from __future__ import annotations

from airflow.providers.common.compat.sdk import conf

_TITLES = {
    "how-to/backfill.md": "Backfill a year",
    "how-to/maintenance.md": "Maintain and verify tables",
    "how-to/many-tables.md": "Merge many tables",
    "how-to/rebuild-and-reprocess.md": "Rebuild and reprocess",
    "how-to/replay-quarantine.md": "Replay the quarantine",
    "how-to/run-on-your-spark-service.md": "Run on your Spark service",
    "how-to/verify-against-the-source.md": "Verify tables against the source",
    "how-to/watch-it.md": "Watch it",
    "how-to/when-something-is-red.md": "When something is red",
    "reference/dags-file.md": "Dags file",
    "reference/sensors.md": "Sensors and the watcher",
}
"""By path below ``docs/``: the page's title."""
_FIRST = "how-to/when-something-is-red.md"


def with_links(text: str | None, *pages: str) -> str:
    """Return a Dag's text with the pages below it, in Markdown: first what to do when something is red.

    A page is a link where ``[airflow_cdc] docs_url`` is set, else its path in the project.

    :param text: the Dag's purpose, such as the Dag file's docstring.
    :param pages: paths below ``docs/``, of pages about the Dag's own work.
    """
    root = str(conf.get("airflow_cdc", "docs_url", fallback="")).rstrip("/")
    named = " · ".join(_named(page, root) for page in (_FIRST, *pages))
    return f"{(text or '').rstrip()}\n\nDocumentation: {named}\n"


def _named(page: str, root: str) -> str:
    return f"[{_TITLES[page]}]({root}/{page})" if root else f"{_TITLES[page]} (`docs/{page}`)"
