"""Bring what the tests on YARN and HDFS need: Hadoop's MiniCluster, and a Python for its nodes that has no Airflow.

``.venv/bin/python scripts/yarn_cluster.py [FOLDER]``, after ``make setup``; a second time does nothing. The folder is
``.tools/yarn-cluster/`` unless named; the tests look there, or where YARN_CLUSTER_TOOLS points. The jars come from Maven Central by the
Ivy that pyspark ships; their checksums are pinned here. There is nothing to compile: the tests drive the cluster's JVM by Py4J.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

import setup

JARS = {
    # Of the Hadoop that PySpark 4.2 ships: it runs on PySpark's own hadoop-client jars.
    "org.apache.hadoop:hadoop-client-minicluster:3.5.0": "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c",
    # The ResourceManager loads them, whether or not it signs anything.
    "org.bouncycastle:bcpkix-jdk18on:1.82": "bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63",
    "org.bouncycastle:bcprov-jdk18on:1.82": "14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce",
    "org.bouncycastle:bcutil-jdk18on:1.82": "4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d",
    # The MiniCluster asserts by JUnit that its folders are there.
    "org.junit.jupiter:junit-jupiter-api:5.13.3": "1a15a52253a972c82c0dbf77759a983f5afed0583585cdc5b2a3beaa1f4ae0ac",
    "org.junit.platform:junit-platform-commons:1.13.3": "02cd66a55df750a123d8f761e6503e455ac108ff1b365d446e874ba3bc56ca89",
    "org.opentest4j:opentest4j:1.3.0": "48e2df636cab6563ced64dcdff8abb2355627cb236ef0bf37598682ddf742f1b",
}
# What a driver needs beside Spark and this package, in the versions of requirements.lock. No Airflow: a cluster has none.
PACKAGES = [
    "certifi",
    "charset-normalizer",
    "fsspec",
    "idna",
    "pyyaml",
    "requests",
    "urllib3",
]
_IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="{cache}"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
_IVY_MODULE = """\
<ivy-module version="2.0">
  <info organisation="airflow_cdc" module="yarn-cluster"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""


def bring(folder: Path) -> None:
    """Bring what is not there in these versions."""
    state = "\n".join([sys.version, Path(__file__).read_text(encoding="utf-8"), setup.LOCK.read_text(encoding="utf-8")])
    if setup.is_brought(folder, state):
        return
    setup.start_log()
    shutil.rmtree(folder, ignore_errors=True)
    bring_jars(folder)
    bring_python(folder / "python")
    (folder / "stamp").write_text(state, encoding="utf-8")


def bring_jars(folder: Path) -> None:
    """Resolve the jars, and take them only with the checksums that are pinned."""
    from airflow_cdc.runtime import require_java_home
    from airflow_cdc.runtime.layout import pyspark_folder

    folder.mkdir(parents=True)
    settings, module, jars = folder / "ivysettings.xml", folder / "ivy.xml", folder / "jars"
    settings.write_text(_IVY_SETTINGS.format(cache=folder / "ivy"), encoding="utf-8")
    # Not what they depend on: Hadoop's clients and their logging are PySpark's.
    rows = (
        f'    <dependency org="{group}" name="{name}" rev="{rev}" conf="default->master" transitive="false"/>'
        for group, name, rev in (jar.split(":") for jar in JARS)
    )
    module.write_text(_IVY_MODULE.format(dependencies="\n".join(rows)), encoding="utf-8")
    command: list[str | Path] = [
        require_java_home() / "bin" / "java",
        f"-Divy.default.ivy.user.dir={folder / 'ivy'}",
        *proxy_options(),
        *("-cp", str(pyspark_folder() / "jars" / "*"), "org.apache.ivy.Main"),
        *("-settings", settings, "-ivy", module),
        *("-retrieve", f"{jars}/[artifact]-[revision].[ext]", "-types", "jar"),
    ]
    setup.run("Hadoop's MiniCluster (60 MB)", command, "see that this machine reaches Maven Central (a proxy is taken from https_proxy).")
    shutil.rmtree(folder / "ivy")
    for coordinates, expected in JARS.items():
        jar = jars / "{1}-{2}.jar".format(*coordinates.split(":"))
        seen = hashlib.sha256(jar.read_bytes()).hexdigest()
        if seen != expected:
            raise setup.SetupError(
                f"{coordinates} has the SHA-256 {seen}, and {expected} is pinned in {Path(__file__).name}.",
                "find out what changed it on its way from Maven Central.",
            )


def bring_python(folder: Path) -> None:
    """Make the environment by which the nodes run a driver."""
    uv, advice = setup.bring_uv(), "see that this machine reaches its Python package registry."
    setup.run("Python of the nodes", [uv, "venv", "--python", sys.executable, folder], advice)
    command: list[str | Path] = [uv, "pip", "install", "--python", folder / "bin" / "python", "--no-deps", "-c", setup.LOCK, *PACKAGES]
    setup.run("packages of the nodes", [*command, "--offline"], advice, otherwise=command)


def proxy_options() -> list[str]:
    """Return the machine's proxy as a JVM takes it."""
    proxy = urlsplit(getproxies().get("https", ""))
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 80}"] if proxy.hostname else []


if __name__ == "__main__":
    sys.exit(setup.bring_tools(sys.argv[1:], "yarn-cluster", bring))
