"""Which Spark has which Delta, which release has which Spark, and whose Python files pyspark has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.runtime import spark_minors as minors
from airflow_cdc.runtime.layout import found_pyspark, version_of_files
from airflow_cdc.runtime.own_pyspark import own_python_paths
from airflow_cdc.runtime.probe_java import Java
from airflow_cdc.runtime.spark_minors import DELTA_ARTIFACT, minor_of, needed_minor, newest_minor, release_minor, where_it_runs


@pytest.mark.parametrize("minor", minors.spark_minors().values(), ids=str)
def test_delta_names_the_minor_that_it_is_built_for(minor: minors.SparkMinor) -> None:
    found = DELTA_ARTIFACT.search(minor.delta)
    assert found
    assert (found["minor"], found["scala"], found["version"]) == (minor.minor, "2.13", "4.4.0")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("file:/a/delta-spark_4.2_2.13-4.4.0.jar", ("4.2", "2.13", "4.4.0")),
        # Ivy puts the group before the name.
        ("file:/ivy/jars/io.delta_delta-spark_4.0_2.13-4.4.0.jar", ("4.0", "2.13", "4.4.0")),
        ("file:/a/delta-spark_2.12-3.3.2.jar", (None, "2.12", "3.3.2")),
        ("io.delta:delta-spark_2.13:4.0.1", (None, "2.13", "4.0.1")),
    ],
)
def test_a_delta_s_name_is_read_as_jar_and_as_coordinates(name: str, parts: tuple[str | None, ...]) -> None:
    found = DELTA_ARTIFACT.search(name)
    assert found
    assert (found["minor"], found["scala"], found["version"]) == parts


@pytest.mark.parametrize("name", ["file:/databricks/jars/delta-core-own.jar", "delta-storage-4.4.0.jar", ""])
def test_another_jar_is_none(name: str) -> None:
    assert DELTA_ARTIFACT.search(name) is None


@pytest.mark.parametrize(("spark", "minor"), [("4.2.0", "4.2"), ("4.0.2-amzn-1", "4.0"), ("4.1.3", "4.1"), ("3.5.8", None), ("x", None)])
def test_a_version_has_a_minor_or_is_none_of_ours(spark: str, minor: str | None) -> None:
    found = minor_of(spark)
    assert (found.minor if found else None) == minor


def test_another_spark_is_refused_with_what_is_there() -> None:
    with pytest.raises(ConfigurationError, match=r"^The image has Spark 3\.5\.8, and jobs run on Spark 4\.0, 4\.1, 4\.2\..*where-it-runs"):
        needed_minor("3.5.8", of="The image")


@pytest.mark.parametrize(
    ("release", "minor"),
    [
        ("emr-8.0.0", "4.0"),
        ("emr-spark-8.0.0", "4.0"),
        ("emr-8.0", "4.0"),
        ("glue-6.0", "4.1"),
        ("dataproc-3.0.2", "4.1"),
        ("dataproc-4.0", "4.2"),
        ("databricks-17.3", "4.0"),
        ("databricks-18.1", "4.1"),
    ],
)
def test_a_release_has_a_spark(release: str, minor: str) -> None:
    assert release_minor(release).minor == minor


@pytest.mark.parametrize("release", ["emr-7.13.0", "glue-5.1", "databricks-15.4", "synapse-3.5"])
def test_a_release_whose_spark_is_too_old_is_refused(release: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^The release {re.escape(release)} has Spark 3\.5, and jobs run on Spark 4\.0"):
        release_minor(release)


@pytest.mark.parametrize("release", ["emr-80.0", "emr", "emr-8", "Glue 6", "databricks-180", ""])
def test_a_release_is_never_guessed(release: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not known\..*emr-8\.0"):
        release_minor(release)


def test_a_java_is_too_new_for_some_hadoop_only(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {}
    for minor in minors.spark_minors():
        monkeypatch.setattr(minors, "installed_pyspark", lambda minor=minor: f"{minor}.0")
        runs[minor] = [number for number in (11, 17, 21, 25) if Java(Path("/j"), number).runs_spark]
    assert runs == {"4.0": [17, 21], "4.1": [17, 21], "4.2": [17, 21, 25]}


def test_without_pyspark_the_newest_is_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minors, "installed_pyspark", lambda: None)
    assert minors.own_minor() is newest_minor()
    monkeypatch.setattr(minors, "installed_pyspark", lambda: "3.5.8")
    with pytest.raises(ConfigurationError, match=r"This Python environment has Spark 3\.5\.8"):
        minors.own_minor()


def test_every_release_names_a_spark_and_a_delta() -> None:
    releases = where_it_runs()["releases"]
    assert len(releases) > 10
    assert [name for name, facts in releases.items() if not (re.fullmatch(r"\d\.\d", facts["spark"]) and facts["delta"])] == []


class TestOwnPyspark:
    """pyspark-client of another version over pyspark."""

    @pytest.fixture
    def site(self, tmp_path: Path) -> Path:
        """A site-packages whose pyspark has files of another version than its jars."""
        package = tmp_path / "pyspark"
        (package / "jars").mkdir(parents=True)
        (package / "python" / "lib").mkdir(parents=True)
        (package / "__init__.py").write_text("whose = 'the client'\n", encoding="utf-8")
        (package / "version.py").write_text('__version__: str = "4.1.1"\n', encoding="utf-8")
        held = tmp_path / "held" / "pyspark"
        held.mkdir(parents=True)
        (held / "__init__.py").write_text("whose = 'its own'\n", encoding="utf-8")
        import shutil

        shutil.make_archive(str(package / "python" / "lib" / "pyspark"), "zip", tmp_path / "held")
        metadata = tmp_path / "pyspark-4.2.1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 4.2.1\n", encoding="utf-8")
        return tmp_path

    def _run(self, site: Path, code: str) -> str:
        root = str(Path(__file__).parents[2])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), root])}
        return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout.strip()

    def test_the_files_that_belong_to_the_jars_are_imported(self, site: Path) -> None:
        code = (
            "from airflow_cdc.runtime.own_pyspark import use_own_pyspark; use_own_pyspark()\n"
            "import pyspark; from airflow_cdc.runtime.layout import pyspark_folder; print(pyspark.whose, pyspark_folder())"
        )
        assert self._run(site, code) == f"its own {site / 'pyspark'}"

    def test_a_child_process_imports_them_too(self, site: Path) -> None:
        code = (
            "from airflow_cdc.runtime.own_pyspark import use_own_pyspark; use_own_pyspark()\n"
            "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import pyspark; print(pyspark.whose)'], check=True)"
        )
        assert self._run(site, code) == "its own"

    def test_files_of_one_version_stay_as_they_are(self, site: Path) -> None:
        (site / "pyspark" / "version.py").write_text('__version__ = "4.2.1"\n', encoding="utf-8")
        code = "from airflow_cdc.runtime.own_pyspark import use_own_pyspark; use_own_pyspark(); import pyspark; print(pyspark.whose)"
        assert self._run(site, code) == "the client"

    def test_here_they_are_of_one_version(self) -> None:
        folder = found_pyspark()
        assert folder
        assert version_of_files(folder) == version("pyspark")
        assert own_python_paths() == []
