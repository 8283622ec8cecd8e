"""Arguments on their way to a driver: what no launcher changes, and how the rest is spelled."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.job_argument import ALL_ARGUMENTS, ENCODED, all_arguments, as_argument, given_arguments, read_argument

NESTED = {"flows": [{"topic": "a", "columns": {"x": {"y": {}}}}], "routes": []}
AWKWARD = ["{{HOME}}", "a}}b", "it's", '"', "$HOME", "`id`", "\\\\", "two\nlines", "<LOG_DIR>", "<CPS>", "$(HOME)", "größe", "", ENCODED]


def _through_yarn(arguments: list[str]) -> list[str]:
    """Return arguments as a driver sees them: quoted by Spark, expanded by YARN, run by its launch script.

    Spark: ``YarnSparkHadoopUtil.escapeForShell``. YARN: ``ContainerLaunch.expandEnvironment``, and ``exec /bin/bash -c "…"``.
    """
    escapes = {"$": "\\$", '"': '\\"', "'": "'\\''"}
    quoted = ["'" + "".join(escapes.get(letter, letter) for letter in argument) + "'" for argument in arguments]
    command = " ".join([sys.executable, "-c", "'import json, sys; print(json.dumps(sys.argv[1:]))'", *quoted])
    for mark, value in (("<LOG_DIR>", "/logs"), ("<CPS>", ":"), ("{{", "$"), ("}}", "")):
        command = command.replace(mark, value)
    script = f'exec /bin/bash -c "{command}"\n'
    done = subprocess.run(["/bin/bash"], input=script, env={"LC_ALL": "C"}, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def test_yarn_hands_on_what_was_given() -> None:
    values = [*AWKWARD, json.dumps(NESTED), json.dumps({}), "s3://b/a path/x=1,y", "server.*"]
    assert [read_argument(text) for text in _through_yarn([as_argument(value) for value in values])] == values
    # And would not, as they are: what the encoding is for.
    assert _through_yarn([json.dumps(NESTED)]) != [json.dumps(NESTED)]


@given(st.text())
def test_no_argument_holds_a_mark_and_each_is_read_back(text: str) -> None:
    argument = as_argument(text)
    assert not any(mark in argument for mark in ("{{", "}}", "`", "$", "\\", "\n", "'", '"', "<", ">", "{", "}"))
    assert read_argument(argument) == text


def test_what_nothing_changes_stays_as_it_is() -> None:
    for plain in ("--archive", "s3a://bucket/topics", "/data/my lake", "*.orders", "!server.x", "2026-11-01T00:00:00+00:00"):
        assert as_argument(plain) == plain


def test_the_largest_settings_still_fit_into_one_argument() -> None:
    text = json.dumps({"flows": [{"topic": f"server.db.table{number}", "keys": ["id"]} for number in range(1900)]})
    assert 90_000 < len(text) < 100_000
    assert len(as_argument(text)) < 131_072


@pytest.mark.parametrize("text", ["no base64!", "bm8gemxpYg=="])
def test_a_text_that_only_begins_so_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be decoded"):
        read_argument(ENCODED + text)


def test_all_arguments_travel_as_one_beside_those_of_the_service() -> None:
    asked = ["--table", "a.*", "--table", "ä b", "--flows", '{"flows": []}', "--report", "s3://b/r.json"]
    words = ["--JOB_NAME", "merge", ALL_ARGUMENTS, all_arguments(asked), "--TempDir", "s3://b/tmp"]
    assert given_arguments(words) == asked
    # Without it each word is an argument of its own.
    assert given_arguments(["--table", as_argument("ä b")]) == ["--table", "ä b"]


@pytest.mark.parametrize("value", ["", "x", '{"a": 1}', "[1]", '["a", null]'])
def test_what_is_no_list_of_texts_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--airflow-cdc holds .*, and no JSON list of texts\..*CdcJob\.glue"):
        given_arguments([ALL_ARGUMENTS, value])
