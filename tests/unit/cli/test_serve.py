"""``airflow-cdc serve`` and ``--connect``: what is refused before anything starts, and how a server is started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from airflow_cdc.pipeline.spark import connect
from airflow_cdc.runtime import connect_server
from tests.unit.cli.conftest import CLOSED_LATE, Run

pytestmark = CLOSED_LATE

# Stands for spark-submit and the server: writes down what it was given, listens, and prints when it gets a signal to end.
SERVER = """\
import json, os, signal, socket, sys, time
properties = sys.argv[sys.argv.index("--properties-file") + 1]
lines = dict(line.rstrip("\\n").split(" ", 1) for line in open(properties))
token = os.environ.get("SPARK_CONNECT_AUTHENTICATE_TOKEN")
seen = {{"token": token, "arguments": sys.argv[1:], "conf": lines, "mode": os.stat(properties).st_mode & 0o777, "pid": os.getpid()}}
json.dump(seen, open({seen!r}, "w"))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(json.dump({{**seen, "ended": True}}, open({seen!r}, "w"))))
if {listens}:
    place = socket.create_server((lines["spark.connect.grpc.binding.address"], int(lines["spark.connect.grpc.binding.port"])))
    time.sleep(300)
sys.exit(7)
"""


def serve(folder: Path, *arguments: str, listens: bool = True, token: str | None = None) -> subprocess.Popen[str]:
    """Start the command with a spark-submit that needs no Spark."""
    (folder / "pyspark" / "bin").mkdir(parents=True)
    submit = folder / "pyspark" / "bin" / "spark-submit"
    submit.write_text(f"#!{sys.executable}\n" + SERVER.format(seen=str(folder / "seen.json"), listens=listens))
    submit.chmod(0o755)
    program = (
        "import sys\nfrom pathlib import Path\nfrom airflow_cdc.runtime import connect_server\n"
        "folder = Path(sys.argv.pop(1))\nconnect_server.pyspark_folder = lambda: folder\nfrom airflow_cdc.cli import app\napp()"
    )
    command = [sys.executable, "-c", program, str(folder / "pyspark"), "serve", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), **({connect_server.TOKEN_VARIABLE: token} if token else {})}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_prints_where_it_is_and_ends_with_the_command(tmp_path: Path, number: signal.Signals) -> None:
    command = serve(tmp_path, "--port", "0", "--conf", "spark.hadoop.fs.s3a.secret.key=s3cr3t", "--packages", "a:b:1")
    assert command.stdout
    line = command.stdout.readline()
    seen = json.loads((tmp_path / "seen.json").read_text())
    command.send_signal(number)
    output, log = command.communicate(timeout=20)
    port = seen["conf"]["spark.connect.grpc.binding.port"]
    assert len(seen["token"]) > 30
    assert line == f"Spark Connect is ready, Ctrl-C ends it: sc://localhost:{port}/;token={seen['token']}\n"
    assert seen["token"] not in str(seen["arguments"])
    assert (command.returncode, output, log) == (0, "", "The server was ended.\n")
    assert json.loads((tmp_path / "seen.json").read_text())["ended"] is True
    # What only this user may read travels by a file.
    assert seen["mode"] == 0o600
    assert "s3cr3t" not in str(seen["arguments"])
    conf = seen["conf"]
    assert conf["spark.hadoop.fs.s3a.secret.key"] == "s3cr3t"
    assert conf["spark.jars.packages"].endswith("a:b:1")
    assert (conf["spark.connect.grpc.binding.address"], conf["spark.port.maxRetries"]) == ("127.0.0.1", "0")
    assert conf["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"


@pytest.mark.parametrize(
    ("arguments", "given", "asked", "shown", "warned"),
    [
        ((), "of-systemd", "of-systemd", "sc://localhost:{port}", ""),
        (("--no-token",), None, None, "sc://127.0.0.1:{port}", "whoever reaches 127.0.0.1 can run what they like"),
        (("--no-token",), "of-systemd", None, "sc://127.0.0.1:{port}", "no token is asked for"),
        (("--host", "0.0.0.0"), "of-systemd", "of-systemd", "sc://0.0.0.0:{port}", "nothing that reaches 0.0.0.0 is encrypted"),
        (("--host", "0.0.0.0", "--no-token"), None, None, "sc://0.0.0.0:{port}", "whoever reaches 0.0.0.0 can run what they like"),
    ],
)
def test_a_token_is_asked_for_unless_none_is_wanted_and_a_known_one_is_not_printed(
    tmp_path: Path, arguments: tuple[str, ...], given: str | None, asked: str | None, shown: str, warned: str
) -> None:
    command = serve(tmp_path, "--port", "0", "--json", *arguments, token=given)
    assert command.stdout
    # Several lines, of which the last one is a brace.
    printed = "".join(iter(command.stdout.readline, "}\n")) + "}"
    seen = json.loads((tmp_path / "seen.json").read_text())
    command.send_signal(signal.SIGTERM)
    log = " ".join(command.communicate(timeout=20)[1].split())
    url = json.loads(printed)["url"]
    assert (seen["token"], url) == (asked, shown.format(port=seen["conf"]["spark.connect.grpc.binding.port"]))
    assert (warned in log, "Warning" in log) == (True, bool(warned))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing ends the server")
def test_a_server_does_not_outlive_a_command_that_was_killed(tmp_path: Path) -> None:
    command = serve(tmp_path, "--port", "0")
    assert command.stdout
    command.stdout.readline()
    command.kill()
    command.communicate(timeout=20)
    pid = json.loads((tmp_path / "seen.json").read_text())["pid"]
    with contextlib.suppress(ProcessLookupError):
        for _ in range(200):
            time.sleep(0.05)
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return
        pytest.fail("the server lives")


def test_a_server_that_does_not_start_is_a_failure_and_one_that_others_would_reach_is_warned_of(tmp_path: Path) -> None:
    command = serve(tmp_path, "--port", "0", "--host", "0.0.0.0", listens=False)
    output, log = command.communicate(timeout=20)
    assert (command.returncode, output) == (1, "")
    assert "Warning: nothing that reaches 0.0.0.0 is encrypted" in log
    assert "ServerNotStartedError: The Spark Connect server ended with exit code 7." in log
    assert "Next step: See Spark's log above." in log


def test_a_port_that_is_taken_is_refused_before_anything_starts(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("serve", "--port", port)
    assert (ended.code, ended.stdout) == (2, "")
    assert f"The server cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "Give another --port" in ended.stderr


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("127.example.com", False)],
)
def test_only_loopback_addresses_are_this_machines_alone(host: str, alone: bool) -> None:
    assert connect_server.is_loopback(host) is alone


def test_the_users_lists_are_added_to_ours() -> None:
    options = connect_server.server_options("h", 1, {"spark.sql.extensions": "my.Extension", "spark.driver.extraJavaOptions": "-Xss4m"})
    assert options["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,my.Extension"
    assert options["spark.driver.extraJavaOptions"].endswith(" -Xss4m")


def test_a_token_does_not_stand_on_the_command_line(run: Run, no_spark: None) -> None:
    ended = run("tables", "--lake", "l", "--connect", "sc://h:1/;token=s3cr3t")
    assert ended.code == 2
    assert "AIRFLOW_CDC_CONNECT" in ended.stderr


def test_a_server_that_is_not_there_is_reported_at_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_SECONDS_TO_ANSWER", 0.5)
    monkeypatch.setenv("no_grpc_proxy", "")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ended = run("maintain", "--lake", "l", "--connect", f"sc://127.0.0.1:{port}")
    assert (ended.code, ended.stdout) == (1, "")
    assert f"SparkUnreachableError: The Spark Connect server sc://127.0.0.1:{port} did not answer within 0.5 s." in ended.stderr
    assert "airflow-cdc serve" in ended.stderr


def test_a_token_makes_pyspark_encrypt_which_the_error_says(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_SECONDS_TO_ANSWER", 0.5)
    monkeypatch.setenv("no_grpc_proxy", "")
    with socket.create_server(("127.0.0.1", 0)) as plain:
        said = {}
        for host in ("127.0.0.1", "localhost"):
            monkeypatch.setenv("AIRFLOW_CDC_CONNECT", f"sc://{host}:{plain.getsockname()[1]}/;token=s3cr3t")
            said[host] = run("maintain", "--lake", "l").stderr
    assert "did not answer within 0.5 s by TLS, which PySpark takes where there is a token" in said["127.0.0.1"]
    assert "did not answer within 0.5 s." in said["localhost"]
    assert "s3cr3t" not in "".join(said.values())


def test_what_is_no_url_of_a_server_is_a_usage_error(run: Run) -> None:
    ended = run("tables", "--lake", "l", "--connect", "http://h:1")
    assert (ended.code, ended.stdout) == (2, "")
    assert "is no URL of a Spark Connect server" in ended.stderr
