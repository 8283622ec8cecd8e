"""Arguments of a submitted job, encoded so that no launcher changes them on their way to the driver.

Spark on YARN starts the driver by ``bash -c "…"`` and quotes for it (``YarnSparkHadoopUtil.escapeForShell``), but neither backquotes nor
backslashes. Before that, YARN replaces ``{{`` by ``$``, removes ``}}`` and fills in ``<LOG_DIR>`` and ``<CPS>``
(``ContainerLaunch.expandEnvironment``). Kubernetes replaces ``$(NAME)``. A driver without a locale misreads non-ASCII letters.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Sequence

from airflow_cdc.model.errors import ConfigurationError

ENCODED = "encoded:"
"""Prefix of an encoded argument."""
ALL_ARGUMENTS = "--airflow-cdc"
"""Argument of a job that holds all of them, where a service takes each name once and adds names of its own (AWS Glue)."""
_UNCHANGED = re.compile(r"[\w@%+=:,./~*?!\[\] -]*", re.ASCII)


def as_argument(value: str) -> str:
    """Return an argument's form for a job: unchanged where it is safe, otherwise compressed and encoded.

    Compressed, because one command-line argument holds 131,072 bytes at most, and base64 adds a third.
    """
    if _UNCHANGED.fullmatch(value) and not value.startswith(ENCODED):
        return value
    return ENCODED + base64.urlsafe_b64encode(zlib.compress(value.encode(), 9)).decode("ascii")


def read_argument(argument: str) -> str:
    """Return the value that :func:`as_argument` encoded; any other argument is its own value.

    :raises ConfigurationError: when the text after the prefix cannot be decoded.
    """
    if not argument.startswith(ENCODED):
        return argument
    try:
        return zlib.decompress(base64.b64decode(argument[len(ENCODED) :], altchars=b"-_", validate=True)).decode()
    except (binascii.Error, zlib.error, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"The argument {argument[:40]!r} begins with {ENCODED!r} and cannot be decoded: {error}.",
            next_step="Give the value as it is, without that prefix.",
        ) from error


def all_arguments(arguments: Sequence[str]) -> str:
    """Return the value of :data:`ALL_ARGUMENTS`."""
    return as_argument(json.dumps(list(arguments)))


def given_arguments(words: Sequence[str]) -> list[str]:
    """Return a job's arguments from the words of its command line: those of :data:`ALL_ARGUMENTS` alone, where it is there.

    :raises ConfigurationError: where they cannot be decoded.
    """
    if ALL_ARGUMENTS not in words[:-1]:
        return [read_argument(word) for word in words]
    value = read_argument(words[words.index(ALL_ARGUMENTS) + 1])
    try:
        held = json.loads(value)
    except json.JSONDecodeError:
        held = None
    if not (isinstance(held, list) and all(isinstance(word, str) for word in held)):
        raise ConfigurationError(
            f"{ALL_ARGUMENTS} holds {value[:40]!r}, and no JSON list of texts.",
            next_step="Let CdcJob.glue() make it, and change nothing of it.",
        )
    return held
