"""The examples in ``deploy/`` are well formed, agree with each other and with the package, and hold no secret."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

import airflow_cdc
from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.runtime import release_minor
from tests.unit.test_citations import anchors

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def read(*path: str) -> str:
    return DEPLOY.joinpath(*path).read_text(encoding="utf-8")


# The page

PAGE = read("README.md")


def test_links_of_the_page_lead_to_files_and_headings() -> None:
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", PAGE) if "://" not in link]
    assert len(links) > 10
    targets = [((DEPLOY / path).resolve(), anchor) for path, _, anchor in (link.partition("#") for link in links)]
    assert [(path, anchor) for path, anchor in targets if not path.exists() or (anchor and anchor not in anchors(path))] == []


def test_the_page_names_the_build_arguments_and_their_defaults() -> None:
    named = dict(re.findall(r"^\| `([A-Z_]+)` \| `([^`]+)` \|", PAGE, re.MULTILINE))
    assert named == {name: default for image in DOCKERFILES for name, default in arguments(read(image, "Dockerfile")).items()}


# Dockerfiles

DOCKERFILES = ["airflow", "spark"]
SECRET = re.compile(r"PASSWORD|PASSWD|SECRET|TOKEN|CREDENTIAL|(?:ACCESS|API|PRIVATE|FERNET)_?KEY", re.IGNORECASE)


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """Return a Dockerfile's instructions, each with its arguments on one line."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(name.upper(), rest.strip()) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())]


def arguments(dockerfile: str) -> dict[str, str]:
    """Return the defaults of a Dockerfile's build arguments."""
    declared = (rest.partition("=") for name, rest in instructions(dockerfile) if name == "ARG")
    return {argument: default for argument, _, default in reversed(list(declared))}


def wrong_with(dockerfile: str) -> list[str]:
    """Return what no image of ours may do."""
    found = []
    users = [rest for name, rest in instructions(dockerfile) if name == "USER"]
    if not users or users[-1].partition(":")[0] in {"0", "root"}:
        found.append("ends as root")
    for name, rest in instructions(dockerfile):
        if name == "ADD":
            found.append(f"ADD {rest}")
        if name in {"ENV", "ARG"} and SECRET.search(rest):
            found.append(f"a secret in {name} {rest}")
        if name == "FROM" and (":" not in rest or rest.split(" ")[0].endswith(":latest")):
            found.append(f"no version: {rest}")
        if name == "COPY":
            *sources, _ = (word for word in rest.split() if not word.startswith("--"))
            found += [f"not there: {source}" for source in sources if not is_there(source, arguments(dockerfile))]
        if "apt-get install" in rest and ("--no-install-recommends" not in rest or "rm -rf /var/lib/apt/lists/*" not in rest):
            found.append(f"leaves more than it needs: {rest}")
    return found


def is_there(source: str, declared: dict[str, str]) -> bool:
    argument = re.fullmatch(r"\$\{(\w+)\}", source)
    return argument[1] in declared if argument else (ROOT / source).exists()


@pytest.mark.parametrize("image", DOCKERFILES)
def test_an_image_ends_without_root_takes_no_secret_and_leaves_nothing_behind(image: str) -> None:
    dockerfile = read(image, "Dockerfile")
    assert wrong_with(dockerfile) == []
    # Kubernetes compares numbers only.
    assert [rest for name, rest in instructions(dockerfile) if name == "USER"][-1].isdigit()
    assert any("apt-get install" in rest for _, rest in instructions(dockerfile))


@pytest.mark.parametrize(
    ("dockerfile", "wrong"),
    [
        ("FROM a:1\nUSER 5\nUSER 0:0\n", ["ends as root"]),
        ("FROM a:1\n", ["ends as root"]),
        ("FROM a\nUSER 5\n", ["no version: a"]),
        ("FROM a:1\nADD https://example.org/x /x\nUSER 5\n", ["ADD https://example.org/x /x"]),
        ("FROM a:1\nENV DB_PASSWORD=x\nUSER 5\n", ["a secret in ENV DB_PASSWORD=x"]),
        (
            "FROM a:1\nCOPY --chown=a:0 README.md ${NOT_DECLARED} gone.md /x/\nUSER 5\n",
            ["not there: ${NOT_DECLARED}", "not there: gone.md"],
        ),
        ("FROM a:1\nRUN apt-get update \\\n    && apt-get install -y x\nUSER 5\n", 1),
    ],
)
def test_an_image_that_does_any_of_this_is_found(dockerfile: str, wrong: list[str] | int) -> None:
    found = wrong_with(dockerfile)
    assert (len(found) if isinstance(wrong, int) else found) == wrong


@pytest.mark.parametrize("image", DOCKERFILES)
def test_the_wheel_that_make_build_writes_is_copied(image: str) -> None:
    assert fnmatch(f"dist/airflow_cdc-{airflow_cdc.__version__}-py3-none-any.whl", arguments(read(image, "Dockerfile"))["WHEEL"])


def test_the_spark_image_asks_for_what_the_package_asks_for_but_airflow_and_pyspark() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    dependencies = re.search(r"^dependencies = \[\n(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    assert dependencies
    asked = set(re.findall(r'^  "([^"]+)",', dependencies[1], re.MULTILINE))
    left_out = re.compile(r"apache-airflow|pyspark")
    wanted = {requirement for requirement in asked if not left_out.match(requirement)}
    assert len(wanted) > 10

    installed = set(re.findall(r'"([\w-]+[<>=][^"]*)"', " ".join(rest for _, rest in instructions(read("spark", "Dockerfile")))))

    # The store asks for s3fs.
    assert {requirement for requirement in installed if not requirement.startswith("s3fs")} == wanted


def test_the_airflow_image_keeps_its_constraints() -> None:
    installs = [rest for name, rest in instructions(read("airflow", "Dockerfile")) if "pip install" in rest]
    assert len(installs) == 1
    assert '--constraint "${AIRFLOW_USER_HOME_DIR}/constraints.txt"' in installs[0]


# Compose

COMPOSE: dict[str, Any] = yaml.safe_load(read("docker-compose.yaml"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
EXAMPLE = dict(re.findall(r"^(\w+)=(.*)$", read(".env.example"), re.MULTILINE))
INTERPOLATED = re.compile(r"(?<!\$)\$\{(\w+)(:\?|:-[^}]*)?\}")
AIRFLOW = "airflow-scheduler"


def mounts() -> Iterator[tuple[str, str, str]]:
    """Yield service, source and the rest of each mount."""
    for name, service in SERVICES.items():
        for mount in service.get("volumes", []):
            source, _, rest = mount.partition(":")
            yield name, source, rest


def literal_secrets(environment: dict[str, str]) -> list[str]:
    """Return the variables that hold a secret as text: one of its own, or a password in a URL or a connection."""
    found = [name for name, value in environment.items() if SECRET.search(name) and not INTERPOLATED.fullmatch(value)]
    for name, value in environment.items():
        secrets = [*re.findall(r"://[^:/@]+:([^@]+)@", value), *re.findall(r'"(?:password|login)": "([^"]*)"', value)]
        found += [name for secret in secrets if not INTERPOLATED.fullmatch(secret)]
    return found


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_an_image_of_a_version_or_a_dockerfile_that_is_there(name: str) -> None:
    service = SERVICES[name]
    if "build" in service:
        context = (DEPLOY / service["build"]["context"]).resolve()
        assert context == ROOT
        assert (context / service["build"]["dockerfile"]).is_file()
    else:
        assert re.search(r":v?\d+(\.\d+)+$", service["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_services_that_can_tell_how_they_are(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        if how["condition"] == "service_completed_successfully":
            assert other == "airflow-init"
        else:
            assert how["condition"] == "service_healthy"
            assert SERVICES[other]["healthcheck"]["test"]


def test_every_service_but_the_one_that_ends_has_a_health_check() -> None:
    assert [name for name, service in SERVICES.items() if "healthcheck" not in service] == ["airflow-init"]


def test_mounts_are_there_and_the_dags_are_read_only() -> None:
    named = {source for _, source, _ in mounts() if not source.startswith(".")}
    assert named == set(COMPOSE["volumes"])
    folders = {(source, rest) for _, source, rest in mounts() if source.startswith(".")}
    assert folders == {("../dags", "/opt/airflow/dags:ro")}
    assert list((DEPLOY / "../dags").resolve().glob("cdc_merge.py"))
    # A mount below a read-only one needs a folder that is there.
    assert (ROOT / "dags" / Path(SERVICES[AIRFLOW]["tmpfs"]).relative_to("/opt/airflow/dags")).is_dir()


def test_no_secret_is_written_down() -> None:
    environments = {name: service["environment"] for name, service in SERVICES.items() if "environment" in service}
    assert {name: found for name, environment in environments.items() if (found := literal_secrets(environment))} == {}
    assert any(SECRET.search(variable) for variable in environments["postgres"])
    assert set(EXAMPLE.values()) == {""}


def test_secrets_that_are_written_down_are_found() -> None:
    environment = {
        "ROOT_SECRET_KEY": "minio123",
        "CONN": "postgresql://airflow:airflow@postgres/airflow",
        "OTHER": '{"login": "${KEY:?}", "password": "x"}',
        "FINE": "postgresql://airflow:${PASSWORD:?}@postgres/airflow",
    }
    assert literal_secrets(environment) == ["ROOT_SECRET_KEY", "CONN", "OTHER"]


def test_the_example_of_the_environment_names_every_variable_that_must_be_set() -> None:
    used = INTERPOLATED.findall(read("docker-compose.yaml"))
    assert {name for name, default in used if default == ":?"} == set(EXAMPLE)
    assert {name for name, default in used if default != ":?"} == {"SPARK_WORKER_CORES", "SPARK_WORKER_MEMORY"}


def test_ports_are_open_to_this_machine_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == len(set(ports)) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_connections_lead_to_the_services() -> None:
    environment = SERVICES[AIRFLOW]["environment"]
    given = {name.removeprefix("AIRFLOW_CONN_").lower(): value for name, value in environment.items() if name.startswith("AIRFLOW_CONN_")}
    connections = {conn_id: json.loads(text) for conn_id, text in given.items()}
    archive, lake = connections[CdcArchiveHook.default_conn_name], connections[CdcLakeHook.default_conn_name]
    assert (archive["conn_type"], lake["conn_type"]) == (CdcArchiveHook.conn_type, CdcLakeHook.conn_type)

    buckets = {rest.removeprefix("/data/") for name, _, rest in mounts() if name == "store" and rest.startswith("/data/")}
    assert {connection["host"].removeprefix("s3://").partition("/")[0] for connection in (archive, lake)} == buckets

    stores = {connection["extra"]["storage_conn_id"] for connection in (archive, lake)}
    assert [connections[store]["extra"]["endpoint_url"] for store in stores] == ["http://store:7070"]
    master = connections["spark_default"]["host"]
    assert master in SERVICES["spark-worker"]["command"]
    assert master.startswith(f"spark://{SERVICES['spark-master']['hostname']}:")


# Helm

CHART_KEYS = set(
    re.findall(
        r"\w+",
        """
    affinity airflowConfigAnnotations airflowHome airflowLocalSettings airflowPodAnnotations airflowVersion allowJobLaunching
    allowPodLaunching apiSecretAnnotations apiSecretKey apiSecretKeySecretName apiServer cleanup config containerLifecycleHooks
    createUserJob dagProcessor dags data databaseCleanup defaultAirflowDigest defaultAirflowRepository defaultAirflowTag elasticsearch
    enableBuiltInSecretEnvVars env executor extraConfigMaps extraEnv extraEnvFrom extraSecrets fernetKey fernetKeySecretAnnotations
    fernetKeySecretName flower fullnameOverride gid imagePullSecrets images ingress jwtSecret jwtSecretAnnotations jwtSecretName
    kerberos labels limits logs migrateDatabaseJob multiNamespaceMode nameOverride networkPolicies nodeSelector opensearch pgbouncer
    podTemplate ports postgresql priorityClasses quotas rbac redis registry revisionHistoryLimit scheduler schedulerName secret
    securityContext securityContexts statsd tolerations topologySpreadConstraints triggerer uid useStandardNaming volumeMounts volumes
    workers
    """,
    )
)
"""The top of ``chart/values.schema.json`` in apache/airflow, of chart 1.22.0. The schema itself takes any other key without a word."""
VALUES: dict[str, Any] = yaml.safe_load(read("helm-values.yaml"))


def test_the_chart_knows_every_value() -> None:
    assert set(VALUES) - CHART_KEYS == set()


def test_the_chart_deploys_the_version_that_the_image_is_built_from() -> None:
    version = arguments(read("airflow", "Dockerfile"))["AIRFLOW_VERSION"]
    assert (VALUES["airflowVersion"], VALUES["defaultAirflowTag"]) == (version, version)


def test_the_chart_makes_no_first_user_or_database_with_a_known_password() -> None:
    assert VALUES["createUserJob"]["enabled"] is False
    assert VALUES["postgresql"]["enabled"] is False


def test_the_connections_and_keys_come_from_secrets() -> None:
    names = {entry["envName"] for entry in VALUES["secret"]}
    wanted = (CdcArchiveHook.default_conn_name, CdcLakeHook.default_conn_name, "spark_default")
    assert names == {f"AIRFLOW_CONN_{conn_id.upper()}" for conn_id in wanted}
    assert all(set(entry) == {"envName", "secretName", "secretKey"} for entry in VALUES["secret"])
    assert {"fernetKeySecretName", "apiSecretKeySecretName", "jwtSecretName"} <= set(VALUES)
    assert not {"fernetKey", "apiSecretKey", "jwtSecret", "env", "extraSecrets"} & set(VALUES)
    assert set(VALUES["data"]) == {"metadataSecretName"}


def test_pods_run_as_the_images_user_without_privileges() -> None:
    pod, container = VALUES["securityContexts"]["pod"], VALUES["securityContexts"]["containers"]
    users = [rest for name, rest in instructions(read("airflow", "Dockerfile")) if name == "USER"]
    assert pod["runAsNonRoot"] is True
    assert str(pod["runAsUser"]) == users[-1]
    assert container == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize("part", ["workers", "scheduler", "triggerer", "dagProcessor", "apiServer"])
def test_each_part_asks_for_what_it_needs_and_has_a_limit_of_memory(part: str) -> None:
    resources = VALUES[part]["resources"]
    assert {"cpu", "memory"} <= set(resources["requests"])
    assert "memory" in resources["limits"]


# Terraform

TERRAFORM = {path.name: path.read_text(encoding="utf-8") for path in sorted((DEPLOY / "terraform").glob("*.tf"))}


def blocks(kind: str) -> list[str]:
    """Return the names of a file's blocks of a kind, such as ``variable``; of resources with their types."""
    found = re.findall(rf'^{kind} ((?:"\w+" ?)+)\{{', "\n".join(TERRAFORM.values()), re.MULTILINE)
    return [".".join(re.findall(r"\w+", names)) for names in found]


def test_terraforms_variables_are_declared_and_used() -> None:
    assert set(TERRAFORM) == {"main.tf", "outputs.tf", "variables.tf", "versions.tf"}
    used = set(re.findall(r"\bvar\.(\w+)", TERRAFORM["main.tf"] + TERRAFORM["outputs.tf"]))
    assert used == set(blocks("variable"))
    assert len(used) > 5


def test_what_terraform_refers_to_is_declared() -> None:
    whole = "\n".join(TERRAFORM.values())
    assert set(re.findall(r"(?<![\w.])(aws_\w+\.\w+)", whole)) <= set(blocks("resource"))
    assert set(re.findall(r"\bdata\.(aws_\w+\.\w+)", whole)) == set(blocks("data"))


def test_the_lakes_bucket_is_private_encrypted_and_versioned() -> None:
    main = TERRAFORM["main.tf"]
    kinds = ("public_access_block", "versioning", "server_side_encryption_configuration", "lifecycle_configuration")
    assert {f"aws_s3_bucket_{kind}.lake" for kind in kinds} <= set(blocks("resource"))
    assert len(re.findall(r"^  (?:block|ignore|restrict)_public_\w+ += true$", main, re.MULTILINE)) == 4


def test_the_jobs_role_reads_the_archive_and_writes_only_the_lake() -> None:
    statements = re.findall(r'^  statement \{\n    sid += "(\w+)"\n(.*?)^  \}', TERRAFORM["main.tf"], re.MULTILINE | re.DOTALL)
    actions = {sid: set(re.findall(r'"s3:(\w+)"', text)) for sid, text in statements}
    assert set(actions) == {"ListArchive", "ReadArchive", "ListLake", "WriteLake"}
    assert actions["ListArchive"] | actions["ReadArchive"] == {"ListBucket", "GetObject"}
    assert {"GetObject", "PutObject", "DeleteObject"} <= actions["WriteLake"]
    resources = {sid: re.findall(r"resources = \[(.+)\]", text) for sid, text in statements}
    assert all("archive" in resources[sid][0] if "Archive" in sid else "aws_s3_bucket.lake" in resources[sid][0] for sid in resources)
    assert '"*"' not in TERRAFORM["main.tf"]


def test_terraforms_outputs_are_the_variables_of_the_dag() -> None:
    dag = (ROOT / "dags/submitters/cdc_emr_serverless.py").read_text(encoding="utf-8")
    assert set(re.findall(r"var\.value\.(\w+)", dag)) == set(re.findall(r"Airflow variable (\w+)\.", TERRAFORM["outputs.tf"]))


def test_terraforms_release_has_a_spark_that_jobs_run_on() -> None:
    default = re.search(r'variable "release_label" \{.*?default += "([^"]+)"', TERRAFORM["variables.tf"], re.DOTALL)
    assert default
    assert release_minor(default[1]).minor == "4.0"
