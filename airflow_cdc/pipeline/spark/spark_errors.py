"""Reading Spark's errors: PySpark's own, and Java's, which report a failed job."""

from __future__ import annotations

import re
from dataclasses import dataclass
from traceback import walk_tb

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from airflow_cdc.model.errors import CdcError, SparkFailedError, StorageFailedError, UnexpectedError, first_line
from airflow_cdc.pipeline.spark.uris import spark_uri

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JJavaError)
"""PySpark has its own exceptions for errors of Spark's analysis. A failed job raises py4j's, with the cause in Java's text."""

_FAILED_ON = re.compile(r"\[FAILED_READ_FILE\.(?P<kind>\w+)\] Encountered error while reading file (?P<file>\S+?)\.?\s")
_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)*(?P<cause>[\w$]+: .+)$", re.MULTILINE)
_NOT_THE_FILES_FAULT = re.compile(
    r"java\.net\.(?!URISyntax)|Timeout|UnknownHost|NoHttpResponse|SSLException|SdkClient|AccessDenied|AccessControl|InterruptedIO"
    r"|ClosedByInterrupt|OutOfMemory|No space left|BlockMissing|FileNotFound"
)
"""Causes that go away by themselves, or with other permissions."""


@dataclass(frozen=True)
class FailedFile:
    """The file at which Spark failed."""

    uri: str
    cause: str
    is_gone: bool
    is_at_fault: bool
    """Whether reading the file again would fail again: it does not have the format of its name, or is truncated."""

    def path_in(self, archive: str) -> str | None:
        """Return the file's path below an archive's root; None if it is not in the archive, but a table's.

        :param archive: URI of the root.
        """
        root = place_of(spark_uri(archive)).rstrip("/") + "/"
        place = place_of(self.uri)
        return place.removeprefix(root) if place.startswith(root) else None


def failed_file(problem: Exception) -> FailedFile | None:
    """Return the file at which Spark failed; None if its error names none."""
    text = str(problem)
    failed = _FAILED_ON.search(text)
    if failed is None:
        return None
    causes = [found["cause"] for found in _CAUSE.finditer(text)]
    is_gone = failed["kind"] == "FILE_NOT_EXIST"
    is_others = _NOT_THE_FILES_FAULT.search("\n".join(re.findall("^Caused by: .*$", text, re.MULTILINE)))
    return FailedFile(failed["file"], causes[-1] if causes else error_line(problem), is_gone, not (is_gone or is_others))


def place_of(uri: str) -> str:
    """Return a URI without scheme and leading slashes: Spark writes a local URI in several ways."""
    return re.sub(r"^([A-Za-z0-9]+:)?/*", "", uri)


def error_line(problem: Exception) -> str:
    """Return an error's message without the plan and Java's stack trace."""
    if not isinstance(problem, Py4JJavaError):
        return first_line(problem)
    # The first line names py4j's own call.
    lines = [line.strip(" :") for line in str(problem).splitlines()[1:] if line.strip(" :")]
    return lines[0] if lines else first_line(problem)


def unforeseen(problem: Exception, what: str, next_step: str) -> CdcError:
    """Return a failure that has no error of its own as one of ours: Spark's, the storage's, or a defect of this package.

    :param what: what failed, for the message.
    """
    if java_is_gone(problem):
        return SparkFailedError(
            f"{what}: Spark's Java process ended under the run ({error_line(problem)}).",
            next_step="Look at the end of Spark's log and of the machine's: was it killed, as where memory is short? The next run goes on.",
        )
    if isinstance(problem, SPARK_ERRORS):
        kind: type[CdcError] = SparkFailedError
    else:
        kind = StorageFailedError if isinstance(problem, OSError) else UnexpectedError
    return kind(f"{what}: {type(problem).__name__}: {error_line(problem)}", next_step=next_step)


def java_is_gone(problem: BaseException | None) -> bool:
    """Return whether an error, or one that it comes from, is that of a call to a Java that does not answer any more."""
    seen: set[int] = set()
    while problem is not None and id(problem) not in seen:
        seen.add(id(problem))
        # Py4J lets the errors of its socket through, which look like those of a store.
        if isinstance(problem, Py4JNetworkError) or (isinstance(problem, ConnectionError) and _passed_py4j(problem)):
            return True
        problem = problem.__cause__ or problem.__context__
    return False


def _passed_py4j(problem: BaseException) -> bool:
    frames = (frame for frame, _ in walk_tb(problem.__traceback__))
    return any(str(frame.f_globals.get("__name__")).startswith("py4j.") for frame in frames)
