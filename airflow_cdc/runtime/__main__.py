"""``python -m airflow_cdc.runtime install``."""

from __future__ import annotations

import argparse
import sys

from airflow_cdc.model.errors import TerminalError
from airflow_cdc.runtime.install import install


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m airflow_cdc.runtime", description="What Spark needs beside Python.")
    parser.add_argument("command", choices=["install"], help="bring Java (where the machine has none) and the Delta jars")
    parser.parse_args()
    try:
        install(lambda line: print(line, flush=True))
    except TerminalError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
