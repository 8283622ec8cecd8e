"""``python -m airflow_cdc.runtime install`` and ``archive-classes``."""

from __future__ import annotations

import argparse
import sys

from airflow_cdc.model.errors import TerminalError
from airflow_cdc.runtime.class_archive import archive_classes
from airflow_cdc.runtime.install import install


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m airflow_cdc.runtime", description="What Spark needs beside Python.")
    what = "bring Java (where the machine has none) and the Delta jars; or let small jobs start faster, for a minute and 200 MB"
    parser.add_argument("command", choices=["install", "archive-classes"], help=what)
    command = parser.parse_args().command
    try:
        if command == "install":
            install(lambda line: print(line, flush=True))
        else:
            print(f"classes archived in {archive_classes()}", flush=True)
    except TerminalError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
