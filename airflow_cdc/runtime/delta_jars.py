"""delta_jars: the jars of Delta and of Spark's Avro reader, resolved once into the Python environment, so that no job waits for a
download.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from airflow_cdc.runtime.layout import RuntimeInstallError, jars_folder, pyspark_folder, runtime_folder
from airflow_cdc.runtime.spark_minors import own_minor, where_it_runs

_SECONDS_TO_RESOLVE = 900
_LINES_SHOWN = 12

# `central` is Ivy's own default root. Our own settings file bypasses ~/.m2 and ~/.ivy2, which another tool may have filled with incomplete
# or local artifacts.
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="{cache}"/>
  <timeout-constraints>
    <timeout-constraint name="patient" connectionTimeout="60000" readTimeout="120000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="central" m2compatible="true" timeoutConstraint="patient"/>
  </resolvers>
</ivysettings>
"""

# Only Delta's own group and the Avro reader. pyspark ships their other dependencies (Hadoop, Jackson, Parquet, log4j) in newer versions,
# and two versions on one class path make a merge fail with NoSuchMethodError. Unity Catalog's client is not used.
_MODULE = """\
<ivy-module version="2.0">
  <info organisation="airflow_cdc" module="runtime"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
    <exclude org="^(?!io.delta$).*" module="^(?!spark-avro_).*" matcher="regexp"/>
  </dependencies>
</ivy-module>
"""


def delta_jars() -> list[Path]:
    """Return the installed jars; an empty list where they are of other versions, or of another Spark.

    :raises ConfigurationError: for a pyspark that jobs do not run on.
    """
    folder = jars_folder()
    return sorted(folder.glob("*.jar")) if _are_in(folder) else []


def _are_in(folder: Path) -> bool:
    return all((folder / "{1}-{2}.jar".format(*package.split(":"))).is_file() for package in own_minor().packages)


def install_delta_jars(java_home: Path) -> None:
    """Resolve the jars from Maven Central and put them in place, all or none.

    :param java_home: the Java that Ivy runs on.
    :raises RuntimeInstallError: when they cannot be resolved, or hold something else than what is recorded.
    """
    runtime_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ivy-", dir=runtime_folder()) as scratch:
        resolved = _resolve(java_home, Path(scratch))
        refuse_other_jars(resolved)
        shutil.rmtree(jars_folder(), ignore_errors=True)
        resolved.replace(jars_folder())


def refuse_other_jars(folder: Path) -> None:
    """Refuse jars that are not, byte by byte, those that the tests of this version ran with: a mirror may serve anything.

    :raises RuntimeInstallError: for a jar whose SHA-256 is not recorded under its name.
    """
    recorded = where_it_runs()["jars"]
    for jar in sorted(folder.glob("*.jar")):
        seen = hashlib.sha256(jar.read_bytes()).hexdigest()
        if seen != recorded.get(jar.name):
            expected = recorded.get(jar.name, "none, because this version of airflow-cdc does not use the jar")
            raise RuntimeInstallError(
                f"{jar.name} has SHA-256 {seen}, expected {expected}.",
                next_step="see which mirror of Maven Central serves this machine, and have it serve Maven Central's own file.",
                package=own_minor().delta,
            )


def _resolve(java_home: Path, scratch: Path) -> Path:
    """Run the Ivy that pyspark ships, with nothing written outside of ``scratch``; return the folder of jars."""
    settings, module, jars = scratch / "ivysettings.xml", scratch / "ivy.xml", scratch / "jars"
    settings.write_text(_SETTINGS.format(cache=scratch / "cache"), encoding="utf-8")
    packages = (package.split(":") for package in own_minor().packages)
    dependencies = [f'    <dependency org="{group}" name="{name}" rev="{rev}" conf="default->default"/>' for group, name, rev in packages]
    module.write_text(_MODULE.format(dependencies="\n".join(dependencies)), encoding="utf-8")
    command = [
        str(java_home / "bin" / "java"),
        "-XX:-UsePerfData",  # Its file would go to /tmp.
        f"-Djava.io.tmpdir={scratch}",
        f"-Divy.default.ivy.user.dir={scratch}",
        *_proxy_options(),
        *("-cp", str(pyspark_folder() / "jars" / "*"), "org.apache.ivy.Main"),
        *("-settings", str(settings), "-ivy", str(module)),
        *("-retrieve", f"{jars}/[artifact]-[revision].[ext]", "-types", "jar"),
    ]
    try:
        ivy = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=_SECONDS_TO_RESOLVE, check=False
        )
        output, resolved = ivy.stdout, ivy.returncode == 0
    except subprocess.TimeoutExpired:
        output, resolved = f"No end after {_SECONDS_TO_RESOLVE} s.", False
    if not resolved or not _are_in(jars):
        raise RuntimeInstallError(
            f"{' and '.join(own_minor().packages)} could not be resolved from Maven Central. Ivy's last lines:\n{_last_lines(output)}\n",
            next_step="see that this machine reaches Maven Central (a proxy is taken from https_proxy), then run the same again.",
            package=own_minor().delta,
        )
    return jars


def _last_lines(output: str) -> str:
    return "\n".join([line for line in output.splitlines() if line.strip()][-_LINES_SHOWN:])


def _proxy_options() -> list[str]:
    """Return the machine's proxy as JVM options: the JVM does not read ``https_proxy``."""
    proxy = urlsplit(getproxies().get("https", ""))
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 80}"] if proxy.hostname else []
