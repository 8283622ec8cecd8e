"""job_parser: the arguments of jobs, those of several declared once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from airflow_cdc.model.archive.archive_shape import ArchiveFormat, ArchiveLayout, ArchiveShape
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.job_argument import given_arguments
from airflow_cdc.model.state.lease import WAIT_SECONDS

Arguments = Mapping[str, Mapping[str, Any]]
"""Options of :meth:`argparse.ArgumentParser.add_argument` by argument."""

_OF_EVERY_JOB: Arguments = {
    "--lake": {"required": True},
    "--table": {"action": "append", "default": []},
    "--storage": {},
    "--run-name": {"default": ""},
    "--wait": {"type": float, "default": WAIT_SECONDS},
    "--report": {"required": True},
}
ARCHIVE: Arguments = {"--archive": {"required": True}}
FLOWS: Arguments = {"--flows": {}}
DRY_RUN: Arguments = {"--dry-run": {"action": "store_true"}}
SHAPE: Arguments = {
    "--layout": {"choices": [layout.value for layout in ArchiveLayout], "default": ArchiveLayout.AUTO.value},
    "--format": {"choices": [form.value for form in ArchiveFormat], "default": ArchiveFormat.AUTO.value},
}


class _JobParser(argparse.ArgumentParser):
    """Accepts arguments as an operator encodes them, and as a person types them."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[argparse.Namespace, list[str]]:  # type: ignore[override]
        try:
            return super().parse_known_args(given_arguments(sys.argv[1:] if args is None else args), namespace)
        except ConfigurationError as error:
            self.error(str(error))


def job_parser(job: str, *more: Arguments) -> argparse.ArgumentParser:
    """Return the parser of a job's arguments, in the form of :func:`airflow_cdc.model.job_argument.as_argument`.

    :param more: what the job takes besides the arguments of every job: :data:`ARCHIVE`, :data:`FLOWS`, :data:`DRY_RUN`, :data:`SHAPE`.
    """
    parser = _JobParser(prog=f"{job}.py")
    for arguments in (_OF_EVERY_JOB, *more):
        for name, options in arguments.items():
            parser.add_argument(name, **options)
    return parser


def shape_of(given: argparse.Namespace) -> ArchiveShape:
    """Return the shape that the arguments :data:`SHAPE` declare."""
    return ArchiveShape(ArchiveLayout(given.layout), ArchiveFormat(given.format))
