"""Hadoop's MiniCluster: a YARN of two nodes and an HDFS, in one JVM that is driven by Py4J.

``scripts/yarn_cluster.py`` brings what it needs; no part of it is in the locked environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape

import psutil
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError

from airflow_cdc.runtime import require_java_home
from airflow_cdc.runtime.layout import pyspark_folder
from tests.system.live_airflow import free_port

ROOT = Path(__file__).parents[2]
TOOLS = Path(os.environ.get("YARN_CLUSTER_TOOLS") or ROOT / ".tools" / "yarn-cluster")
PYTHON = TOOLS / "python" / "bin" / "python"
"""The nodes' Python: what a driver needs beside Spark and this package, and no Airflow."""
_OF_PYSPARK = ("hadoop-client-", "jcl-over-slf4j-", "leveldbjni-", "log4j-", "py4j-", "slf4j-api-", "snappy-java-")
_LOG4J = """
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
# Nobody reads the other one after the first two lines.
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


class YarnCluster:
    """A ResourceManager with a store by which it survives its restart, two NodeManagers, a NameNode and two DataNodes."""

    def __init__(self, folder: Path) -> None:
        if not PYTHON.exists():
            raise FileNotFoundError(f"{TOOLS} lacks the cluster. Next step: .venv/bin/python scripts/yarn_cluster.py.")
        folder.mkdir(parents=True)
        self.folder, self.conf_folder = folder, folder / "conf"
        self._jvm, self._gateway = self._start_jvm()
        try:
            self._start(self._gateway.jvm)
        except Py4JJavaError as error:
            message = str(error)  # The JVM is asked for it.
            self.stop()
            raise RuntimeError(message) from None
        except BaseException:
            self.stop()
            raise

    def _start(self, java: Any) -> None:
        conf = java.org.apache.hadoop.hdfs.HdfsConfiguration()
        conf.set("hdfs.minidfs.basedir", str(self.folder / "dfs"))
        dfs = java.org.apache.hadoop.hdfs.MiniDFSCluster.Builder(conf).numDataNodes(2).build()
        dfs.waitActive()
        self.hdfs = str(dfs.getURI())
        """Root URL of the HDFS."""
        self.web_hdfs = str(dfs.getHttpUri(0)).removeprefix("http://")
        """``host:port`` of WebHDFS."""
        self._settings = {**_SETTINGS, **self._addresses(), "fs.defaultFS": self.hdfs}
        self._write_conf()
        yarn_conf = java.org.apache.hadoop.yarn.conf.YarnConfiguration(conf)
        for name, value in self._settings.items():
            yarn_conf.set(name, value)
        self._yarn = java.org.apache.hadoop.yarn.server.MiniYARNCluster("yarn", 2, 1, 1)
        self._yarn.init(yarn_conf)
        self._yarn.start()
        self._wait_for_nodes(2)

    @property
    def resource_manager(self) -> str:
        """URL of the ResourceManager's pages and REST interface."""
        return f"http://{self._settings['yarn.resourcemanager.webapp.address']}"

    def restart_resource_manager(self) -> None:
        """Stop the ResourceManager and start another one, which reads the first one's store."""
        self._yarn.restartResourceManager(0)
        self._wait_for_nodes(2)

    def stop_node(self, address: str) -> None:
        """Stop a NodeManager, and with it its containers.

        :param address: ``host:port`` of its pages.
        """
        managers = [self._yarn.getNodeManager(number) for number in range(2)]
        (manager,) = (each for each in managers if each.getNMContext().getHttpPort() == int(address.rpartition(":")[2]))
        manager.stop()

    def ask(self, path: str) -> Any:
        """Return the answer of the ResourceManager's REST interface."""
        request = Request(f"{self.resource_manager}/ws/v1/cluster/{path}", headers={"Accept": "application/json"})
        with urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def applications(self) -> list[dict[str, Any]]:
        """Return all applications, the oldest first."""
        apps = (self.ask("apps")["apps"] or {}).get("app", [])
        return sorted(apps, key=lambda app: str(app["id"]))

    def container_logs(self) -> str:
        """Return all that containers wrote, and the scripts that started them."""
        files = [*self.folder.glob("target/**/stdout"), *self.folder.glob("target/**/stderr"), *self.folder.glob("target/**/*.sh")]
        return "\n".join(f"== {file}\n{file.read_text(errors='replace')}" for file in sorted(files))

    def stop(self) -> None:
        """End all, containers too, which would outlive their nodes."""
        self._gateway.close()
        for process in (*psutil.Process(self._jvm.pid).children(recursive=True), self._jvm):
            with suppress(psutil.Error):
                process.kill()
        self._jvm.communicate()

    def _start_jvm(self) -> tuple[subprocess.Popen[str], JavaGateway]:
        (self.folder / "log4j2.properties").write_text(_LOG4J)
        jars = [
            *(TOOLS / "jars").glob("*.jar"),
            *(jar for jar in (pyspark_folder() / "jars").glob("*.jar") if jar.name.startswith(_OF_PYSPARK)),
        ]
        java_home = require_java_home()
        command = [
            *(str(java_home / "bin" / "java"), "-Xmx1g", f"-Dlog4j2.configurationFile=file:{self.folder}/log4j2.properties"),
            *("-cp", os.pathsep.join(map(str, jars)), "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"),
        ]
        # The nodes start containers with what this JVM has, and nothing of Airflow may be in it.
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "SPARK", "PYSPARK", "PYTHON", "HADOOP"))
        }
        environment = {**kept, "JAVA_HOME": str(java_home)}
        with (self.folder / "cluster.log").open("w") as log:
            jvm = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert jvm.stdout
        port, token = int(jvm.stdout.readline()), jvm.stdout.readline().strip()
        # With memory management, what is collected later would ask for a JVM that is gone.
        parameters = GatewayParameters(port=port, auth_token=token, enable_memory_management=False)
        return jvm, JavaGateway(gateway_parameters=parameters)

    def _addresses(self) -> dict[str, str]:
        # Fixed, so that a ResourceManager that is started again is found where it was.
        services = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
        manager = {f"yarn.resourcemanager.{service}": f"127.0.0.1:{free_port()}" for service in services}
        node = {f"yarn.nodemanager.{service}": "127.0.0.1:0" for service in ("address", "localizer.address", "webapp.address")}
        return {**manager, **node, "yarn.resourcemanager.fs.state-store.uri": f"file:{self.folder}/rm-store"}

    def _write_conf(self) -> None:
        self.conf_folder.mkdir()
        rows = "".join(f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in self._settings.items())
        for file in ("core-site.xml", "yarn-site.xml"):
            (self.conf_folder / file).write_text(f"<configuration>{rows}</configuration>")

    def _wait_for_nodes(self, count: int) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if self.ask("metrics")["clusterMetrics"]["activeNodes"] == count:
                return
            time.sleep(0.5)
        raise AssertionError((self.folder / "cluster.log").read_text(errors="replace")[-4000:])


_SETTINGS = {
    "dfs.replication": "1",
    "yarn.minicluster.fixed.ports": "true",
    # Without, the nodes call the ResourceManager's object, and would go on with the one that was stopped.
    "yarn.minicluster.use-rpc": "true",
    "yarn.resourcemanager.connect.retry-interval.ms": "1000",
    "yarn.resourcemanager.recovery.enabled": "true",
    "yarn.resourcemanager.store.class": "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore",
    "yarn.nm.liveness-monitor.expiry-interval-ms": "10000",
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    # A driver is the application's master: without it the second of two jobs would wait for the first.
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    "yarn.minicluster.yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    # The nodes refuse a disk that is 90% full even without that checker: "No space available in any of the local directories".
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
    # What an application leaves is looked through for secrets.
    "yarn.nodemanager.delete.debug-delay-sec": "86400",
}


@contextmanager
def running_cluster(folder: Path) -> Iterator[YarnCluster]:
    """Run a cluster below a folder."""
    cluster = YarnCluster(folder)
    try:
        yield cluster
    finally:
        cluster.stop()
