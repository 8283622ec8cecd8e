"""Arguments of a submitted job, encoded so that no launcher changes them on their way to the driver.

Spark on YARN starts the driver by ``bash -c "…"`` and quotes for it (``YarnSparkHadoopUtil.escapeForShell``), but neither backquotes nor
backslashes. Before that, YARN replaces ``{{`` by ``$``, removes ``}}`` and fills in ``<LOG_DIR>`` and ``<CPS>``
(``ContainerLaunch.expandEnvironment``). Kubernetes replaces ``$(NAME)``. A driver without a locale misreads non-ASCII letters.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib

from airflow_cdc.model.errors import ConfigurationError

ENCODED = "encoded:"
"""Prefix of an encoded argument."""
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
