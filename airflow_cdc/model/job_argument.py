"""Arguments of a submitted job, spelled so that no launcher changes them on their way to the driver.

Spark on YARN starts the driver by ``bash -c "…"`` and quotes for it (``YarnSparkHadoopUtil.escapeForShell``), but neither a backquote nor
a backslash; before that YARN replaces ``{{`` by ``$``, removes ``}}`` and fills in ``<LOG_DIR>`` and ``<CPS>``
(``ContainerLaunch.expandEnvironment``). Kubernetes replaces ``$(NAME)``. A driver without a locale misreads letters that are not ASCII.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib

from airflow_cdc.model.errors import ConfigurationError

ENCODED = "encoded:"
"""Begins an argument that does not stand for itself."""
_UNCHANGED = re.compile(r"[\w@%+=:,./~*?!\[\] -]*", re.ASCII)


def as_argument(value: str) -> str:
    """Return how an argument is handed to a job: as it is where nothing changes it, else compressed and encoded.

    Compressed, because one argument of a command line holds 131,072 bytes at most, and base64 makes a third more of them.
    """
    if _UNCHANGED.fullmatch(value) and not value.startswith(ENCODED):
        return value
    return ENCODED + base64.urlsafe_b64encode(zlib.compress(value.encode(), 9)).decode("ascii")


def read_argument(argument: str) -> str:
    """Return the value that :func:`as_argument` made an argument of; any other argument is its own value.

    :raises ConfigurationError: when what follows the prefix is no such value.
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
