"""A job that continues in the cluster while its task waits in the triggerer: how it is submitted, and how it is killed from there."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.operators.spark_target import SparkTarget

if TYPE_CHECKING:
    from requests.auth import AuthBase

PROVIDER_FOLLOWS_JOBS = hasattr(SparkSubmitHook, "_get_yarn_rm_base_url")
"""Whether the Spark provider can follow a job that runs in a cluster: version 6.3 on. Constraints of older Airflows have an older one."""
_ABOUT_FOLLOWING = ("durable", "track_driver_via_k8s_api", "yarn_track_via_rm_api")
_YARN_WAITS = "spark.yarn.submit.waitAppCompletion"
_KUBERNETES_WAITS = "spark.kubernetes.submission.waitAppCompletion"

_log = logging.getLogger(__name__)


def arguments_to_follow(operator: Any, given: dict[str, Any], auth: AuthBase | None) -> dict[str, Any]:
    """Return the arguments for the Spark provider's operator, with what it asks about following jobs. One of an older provider gets what it
    lacks instead: it neither reconnects to a job nor asks a cluster.

    :param given: the user's; those about following jobs are without effect there.
    :param auth: authentication at YARN's ResourceManager.
    """
    if PROVIDER_FOLLOWS_JOBS:
        return {**given, "yarn_rm_auth": auth}
    operator.durable = operator._track_driver_via_k8s_api = operator._yarn_track_via_rm_api = False
    operator._yarn_rm_auth = None
    if ignored := [name for name in _ABOUT_FOLLOWING if given.get(name)]:
        _log.info("The Spark provider is older than 6.3: without effect are %s.", ", ".join(ignored))
    return {name: value for name, value in given.items() if name not in _ABOUT_FOLLOWING}


def why_not_left(target: SparkTarget) -> str | None:
    """Return why a task keeps its job, deferrable or not; None where the job may be left to the cluster."""
    if target.driver_is_here:
        return "The driver runs here, as a child of this task"
    return None if PROVIDER_FOLLOWS_JOBS else "The Spark provider is older than 6.3"


def conf_to_leave(target: SparkTarget, conf: dict[str, Any]) -> dict[str, Any]:
    """Return Spark's options with which spark-submit ends as soon as the cluster has accepted the job.

    :raises ConfigurationError: when the user's options make it wait.
    """
    option = _KUBERNETES_WAITS if target.is_kubernetes else _YARN_WAITS
    if str(conf.get(option, "false")).strip().lower() != "false":
        raise ConfigurationError(
            f"The task is deferrable, and its conf sets {option}={conf[option]}: spark-submit would hold the worker's slot.",
            next_step=f"Take {option} out of conf, or set deferrable=False.",
        )
    return {**conf, option: "false"}


def job_of(hook: SparkSubmitHook) -> str | None:
    """Return the cluster's name for a hook's submitted job, in the form of Spark's operator; None where spark-submit did not report it."""
    if hook._is_kubernetes:
        pod = hook._kubernetes_driver_pod
        return f"{hook._connection['namespace']}:{pod}" if pod else None
    return hook._yarn_application_id


def take_up(hook: SparkSubmitHook, job: str) -> None:
    """Attach a job to a hook that submitted nothing, so that its ``on_kill`` kills the job."""
    if hook._is_kubernetes:
        hook._connection["namespace"], hook._kubernetes_driver_pod = job.split(":", 1)
    else:
        hook._yarn_application_id = job


def is_manager_known(hook: SparkSubmitHook) -> bool:
    """Return whether the Spark connection names YARN's ResourceManager, which can report on a job and kill it."""
    try:
        return bool(hook._get_yarn_rm_base_url())
    except ValueError:
        return False


def kill_left_job(job: str, *, conn_id: str, keytab: str | None = None, principal: str | None = None, rm_auth: str | None = None) -> None:
    """Kill a job from a process that did not submit it: through YARN's REST interface, or by deleting the driver's pod.

    :param keytab: the operator's; with ``principal`` it makes the request use Kerberos.
    :param rm_auth: the operator's ``yarn_rm_auth`` as an import path.
    """
    is_pod = ":" in job
    hook = SparkSubmitHook(
        conn_id=conn_id,
        deploy_mode="cluster",
        keytab=keytab,
        principal=principal,
        track_driver_via_k8s_api=is_pod,
        yarn_track_via_rm_api=not is_pod,
        yarn_rm_auth=made_auth(rm_auth) if rm_auth else None,
    )
    take_up(hook, job)
    hook.on_kill()


def made_auth(path: str) -> AuthBase:
    """Return the authentication that a callable makes.

    :param path: import path of a callable without arguments, such as ``requests_kerberos.HTTPKerberosAuth``.
    :raises ConfigurationError: when it cannot be imported or called.
    """
    module, _, name = path.rpartition(".")
    try:
        auth: AuthBase = getattr(import_module(module), name)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"yarn_rm_auth {path!r} makes no authentication: {error}.",
            next_step="Name a class or function that takes no arguments and returns a requests.auth.AuthBase.",
        ) from error
    return auth
