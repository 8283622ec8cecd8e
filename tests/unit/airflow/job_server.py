"""Runs the job that stands for Spark's in a fork of one process: to import what it needs takes a fifth of a second each time."""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[3]

CLIENT = """\
import array, json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({server!r})
    told = json.dumps([__file__, sys.argv, dict(os.environ), os.getcwd()]).encode()
    streams = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))]
    server.sendmsg([len(told).to_bytes(8, "big")], streams)
    server.sendall(told)
    ended = server.recv(1)
# A job that was killed says nothing.
sys.exit(ended[0] if ended else 137)
"""
"""What a script's process does: it hands its streams over and ends as the fork does."""

PREAMBLE = """\
#!{python} -IS
if "FORKED" not in globals():
    exec(open({client!r}).read())
"""
"""The beginning of a script that the server runs."""


@contextmanager
def job_server() -> Iterator[str]:
    """Start the server, and yield the beginning of scripts that it runs."""
    # The path of a socket may have no more than a hundred characters.
    with tempfile.TemporaryDirectory(prefix="airflow-cdc-jobs-") as folder:
        client, server = Path(folder) / "client.py", f"{folder}/server"
        client.write_text(CLIENT.format(server=server))
        with subprocess.Popen([sys.executable, __file__, server], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield PREAMBLE.format(python=sys.executable, client=str(client))
            process.stdin.close()


def serve(address: str) -> None:
    """Run jobs until stdin is closed."""
    sys.path.insert(0, str(REPOSITORY))
    import fsspec

    import airflow_cdc.jobs.write_report
    import airflow_cdc.model.report.apply_report
    import airflow_cdc.model.state.lake
    import airflow_cdc.model.state.microbatch  # noqa: F401

    fsspec.filesystem("file")
    # Nobody waits for the forks.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    os._exit(_run(connection))


def _run(connection: socket.socket) -> int:
    """Run one job as its script's process would; tell its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, ancillary, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(2 * array.array("i").itemsize))
    streams = array.array("i", ancillary[0][2])
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
        os.close(stream)
    told = b""
    while len(told) < int.from_bytes(size, "big"):
        told += connection.recv(2**20)
    script, sys.argv, environment, folder = json.loads(told)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    code = _code_of(script)
    with suppress(BrokenPipeError):
        connection.sendall(bytes([code]))
    return code


def _code_of(script: str) -> int:
    job: dict[str, Any] = {"__name__": "__main__", "__file__": script, "FORKED": True}
    try:
        exec(compile(Path(script).read_text(), script, "exec"), job)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does.
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
