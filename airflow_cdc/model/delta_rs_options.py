"""The options by which delta-rs reaches a store as fsspec does: from fsspec's own options, or not at all.

delta-rs takes options from the environment too, and not only those that begin with ``AWS_``: ``TOKEN`` or ``REGION`` count as well. So a
variable that would change where it goes, or as whom, is refused as an unknown option is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

Options = Mapping[str, Any]
_Names = frozenset[str]


class _Machine(NamedTuple):
    """What delta-rs may take from elsewhere than its options."""

    variables: _Names
    """Of the environment, in lower case."""
    has_profiles: bool


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_IGNORED = {"use_listings_cache"}
_BARE = _words(
    "access_key_id secret_access_key session_token token region default_region endpoint endpoint_url bucket bucket_name "
    "skip_signature unsigned_payload checksum_algorithm conditional_put copy_if_not_exists virtual_hosted_style_request s3_express "
    "request_payer disable_tagging imdsv1_fallback metadata_endpoint service_account service_account_path service_account_key "
    "application_credentials base_url account_name account_key access_key master_key client_id client_secret tenant_id authority_id "
    "authority_host sas_key sas_token bearer_token storage_token msi_endpoint identity_endpoint object_id federated_token_file "
    "use_emulator use_fabric_endpoint use_azure_cli allow_http allow_invalid_certificates connect_timeout timeout http1_only http2_only "
    "pool_idle_timeout pool_max_idle_per_host proxy_url proxy_ca_certificate proxy_excludes default_content_type user_agent "
    "randomize_addresses read_timeout"
)
"""Variables that delta-rs reads though nothing in their names says so, in lower case."""
_AWS_KEYS = frozenset({"aws_access_key_id", "aws_secret_access_key", "aws_session_token"})
_AWS_REGIONS = frozenset({"aws_region", "aws_default_region"})
_AWS_ENDPOINTS = frozenset({"aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint"})
"""Other names of an option that is given."""
_AWS_PROFILES = frozenset({"aws_profile", "aws_default_profile", "aws_shared_credentials_file", "aws_config_file", "aws_sdk_load_config"})
_AWS_MACHINE = _words(
    "aws_web_identity_token_file aws_role_arn aws_role_session_name aws_container_credentials_relative_uri "
    "aws_container_credentials_full_uri aws_container_authorization_token aws_container_authorization_token_file"
)
"""Variables of a workload's or a container's own credentials."""
_AWS_HARMLESS = _words(
    "aws_execution_env aws_default_output aws_pager aws_sts_regional_endpoints aws_retry_mode aws_max_attempts "
    "aws_ec2_metadata_disabled aws_conn_id"
)
_GOOGLE_HARMLESS = frozenset({"google_application_credentials", "google_cloud_project", "google_cloud_quota_project"})


class NotReached(Exception):  # noqa: N818 - not an error: Spark reaches the store.
    """delta-rs would not surely reach a store as fsspec does; the message is the reason and holds no value of an option."""


def delta_rs_options(store: str, options: Options, environment: Mapping[str, str], *, has_profiles: bool = False) -> dict[str, str]:
    """Return delta-rs's ``storage_options`` for a store.

    :param store: as :func:`airflow_cdc.model.storage.store_of` spells it.
    :param options: fsspec's options for the store.
    :param has_profiles: whether this machine's user has AWS profiles, which delta-rs does not read.
    :raises NotReached: for an option or a variable without a certain equivalent, and for a store of another kind.
    """
    parts = urlsplit(store)
    if parts.scheme not in _STORES:
        raise NotReached(f"delta-rs is not used on {parts.scheme}://")
    given = {name: value for name, value in options.items() if value is not None and name not in _IGNORED}
    variables = frozenset(name.lower() for name, value in environment.items() if value)
    return _STORES[parts.scheme](parts.netloc, given, _Machine(variables, has_profiles))


def _s3(bucket: str, given: Options, machine: _Machine) -> dict[str, str]:
    _refuse_unknown(given, {"key", "secret", "token", "anon", "endpoint_url", "client_kwargs", "config_kwargs"})
    client, config = given.get("client_kwargs") or {}, given.get("config_kwargs") or {}
    _refuse_unknown(client, {"region_name"}, within="client_kwargs")
    _refuse_unknown(config, {"s3"}, within="config_kwargs")
    _refuse_unknown(config.get("s3") or {}, {"addressing_style"}, within="config_kwargs.s3")
    style, endpoint = (config.get("s3") or {}).get("addressing_style") or "auto", given.get("endpoint_url")
    if style not in {"path", "virtual", "auto"}:
        raise NotReached("the addressing style of the store is none of path, virtual and auto")
    found = {
        # The default since delta-rs 1.0; without it nothing would exclude a second writer of a version.
        "aws_conditional_put": "etag",
        "aws_virtual_hosted_style_request": str(style == "virtual").lower(),
        "aws_allow_http": str(bool(endpoint) and urlsplit(str(endpoint)).scheme == "http").lower(),
    }
    if endpoint:
        found["aws_endpoint_url"] = _with_bucket(endpoint, bucket) if style == "virtual" else endpoint
    if region := client.get("region_name"):
        found["aws_region"] = region
    keys, allowed = _aws_keys(given, machine)
    allowed |= _AWS_HARMLESS | _AWS_REGIONS
    if endpoint:
        allowed |= _AWS_ENDPOINTS
    if found["aws_allow_http"] == "true":
        # Certificate authorities that delta-rs would not know.
        allowed |= {"aws_ca_bundle"}
    _refuse_variables(machine.variables, "aws_", {**found, **keys}, allowed=allowed)
    return {**found, **keys}


def _with_bucket(endpoint: str, bucket: str) -> str:
    """Return the endpoint of a bucket that is a part of the host's name."""
    parts = urlsplit(endpoint)
    return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()


def _aws_keys(given: Options, machine: _Machine) -> tuple[dict[str, str], _Names]:
    """Return the options of the keys, and the variables of keys that may be set beside them."""
    if given.get("anon"):
        return {"aws_skip_signature": "true"}, _AWS_KEYS | _AWS_PROFILES | _AWS_MACHINE
    signed = {"aws_skip_signature": "false"}
    if bool(given.get("key")) != bool(given.get("secret")) or (given.get("token") and not given.get("key")):
        raise NotReached("the store's keys are incomplete")
    if given.get("key"):
        keys = {"aws_access_key_id": given["key"], "aws_secret_access_key": given["secret"]}
        if given.get("token"):
            keys["aws_session_token"] = given["token"]
        # A token in the environment would be joined to these keys.
        return {**signed, **keys}, (_AWS_KEYS - {"aws_session_token"}) | _AWS_PROFILES | _AWS_MACHINE
    in_environment = machine.variables & {"aws_access_key_id", "aws_secret_access_key"}
    if len(in_environment) == 2:
        return signed, _AWS_KEYS | _AWS_PROFILES | _AWS_MACHINE
    if in_environment or machine.has_profiles or machine.variables & _AWS_PROFILES:
        raise NotReached("the store's keys may be those of an AWS profile")
    return signed, _AWS_MACHINE


def _google(_bucket: str, given: Options, machine: _Machine) -> dict[str, str]:
    # The project counts for whoever lists or creates buckets.
    _refuse_unknown(given, {"token", "project"})
    token = given.get("token")
    found: dict[str, str] = {}
    if isinstance(token, str):
        if not token.startswith("/"):
            raise NotReached("the store's token is no path of a key file")
        found["google_service_account"] = token
    elif isinstance(token, Mapping):
        if token.get("type") != "service_account":
            raise NotReached("the store's token is no service account's key")
        found["google_service_account_key"] = json.dumps(token)
    elif token is not None:
        raise NotReached("the store's token is of an unknown kind")
    _refuse_variables(machine.variables, "google_", found, allowed=_GOOGLE_HARMLESS)
    return found


def _azure(container: str, given: Options, machine: _Machine) -> dict[str, str]:
    _refuse_unknown(given, {"account_name", *_AZURE_CREDENTIALS})
    host = container.partition("@")[2]
    if not given.get("account_name") or host.split(".", 1)[0] != given["account_name"]:
        raise NotReached("the root names another storage account than its options")
    credentials = {name: value for name, value in given.items() if name in _AZURE_CREDENTIALS}
    # Without any, adlfs looks in other places than delta-rs.
    if frozenset(credentials) not in _AZURE_KINDS:
        raise NotReached("the store's credentials are not one of account key, shared access signature and service principal")
    found = {_AZURE_CREDENTIALS[name]: str(value).removeprefix("?") for name, value in credentials.items()}
    found["azure_storage_account_name"] = given["account_name"]
    _refuse_variables(machine.variables, "azure_", found, allowed=frozenset())
    return found


_AZURE_CREDENTIALS = {
    "account_key": "azure_storage_account_key",
    "sas_token": "azure_storage_sas_token",
    "tenant_id": "azure_tenant_id",
    "client_id": "azure_client_id",
    "client_secret": "azure_client_secret",
}
_AZURE_KINDS = {frozenset({"account_key"}), frozenset({"sas_token"}), frozenset({"tenant_id", "client_id", "client_secret"})}
_STORES: Mapping[str, Callable[[str, Options, _Machine], dict[str, str]]] = {"s3": _s3, "gs": _google, "abfss": _azure}


def _refuse_unknown(given: Options, known: Collection[str], *, within: str = "") -> None:
    if unknown := sorted(given.keys() - set(known)):
        raise NotReached(f"the store's option {within + '.' if within else ''}{unknown[0]} has no equivalent in delta-rs")


def _refuse_variables(variables: _Names, prefix: str, found: Mapping[str, str], *, allowed: _Names) -> None:
    """Refuse variables that delta-rs would take for options which are not given."""
    ours = {*found, *(name.removeprefix(prefix) for name in found), *allowed}
    if refused := sorted(name for name in variables - ours if name.startswith(prefix) or name in _BARE):
        raise NotReached(f"delta-rs may read the environment variable {refused[0].upper()}")
