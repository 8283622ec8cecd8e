"""The ZIP file that Apicurio Registry exports (``/apis/registry/v2/admin/export`` and ``v3``).

It holds for each version ``groups/<group>/artifacts/<artifact>/versions/<version>.ArtifactVersion.json`` with the ``contentId``, for each
content ``content/<hash>.Content.json`` with its ``contentId`` and references, and ``content/<hash>.Content.data``, the schema itself.
The type stands in the version (2.x), in the content, or in ``….Artifact.json`` (3.x).
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.handed_over.registry import Reference, RegisteredSchema

_OUT_OF_USE = {"DISABLED", "DRAFT"}


def is_zip(data: bytes) -> bool:
    """Return whether a file's bytes are a ZIP file's."""
    return data.startswith(b"PK\x03\x04")


def in_export(data: bytes, origin: str) -> list[RegisteredSchema]:
    """Return the schemas in an export, all versions that are in use.

    :raises ConfigurationError: when it is a ZIP file that Apicurio Registry has not written.
    """
    try:
        return _read(zipfile.ZipFile(io.BytesIO(data)), origin)
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"{origin} is no export of Apicurio Registry: {type(error).__name__} {error}.",
            next_step="Export it anew from /apis/registry/v3/admin/export (or v2); hand over files of another ZIP unpacked.",
        ) from error


def _read(archive: zipfile.ZipFile, origin: str) -> list[RegisteredSchema]:
    contents = {document["contentId"]: (name, document) for name, document in _documents(archive, ".Content.json")}
    kinds = {_place(document): document.get("artifactType") for _, document in _documents(archive, ".Artifact.json")}
    versions = [document for _, document in _documents(archive, ".ArtifactVersion.json")]
    if not contents or not versions:
        raise ValueError(f"it holds {len(contents)} contents and {len(versions)} versions of artifacts, expected one at least of each")
    found = []
    for version in versions:
        if version.get("state") in _OUT_OF_USE:
            continue
        name, content = contents[version["contentId"]]
        group, artifact = _place(version)
        label = str(version["version"])
        number = int(version.get("versionOrder") or version.get("versionId") or 0)
        kind = version.get("artifactType") or content.get("artifactType") or kinds.get((group, artifact))
        found.append(
            RegisteredSchema(
                text=archive.read(name.removesuffix("json") + "data").decode(),
                origin=f"{origin}, artifact {artifact} version {label}",
                subject=artifact,
                group=group,
                # Confluent's, brought over by Apicurio's tool, have the number in the label alone.
                version=(number, int(label) if label.isdecimal() else 0),
                label=label,
                kind=str(kind or "AVRO").upper(),
                references=tuple(_references(content.get("serializedReferences"))),
            )
        )
    return found


def _documents(archive: zipfile.ZipFile, ending: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in archive.namelist():
        if name.endswith(ending):
            yield name, json.loads(archive.read(name))


def _place(document: dict[str, Any]) -> tuple[str, str]:
    return str(document.get("groupId") or "default"), str(document["artifactId"])


def _references(text: str | None) -> Iterator[Reference]:
    for each in json.loads(text or "[]"):
        yield Reference(str(each["name"]), str(each["artifactId"]), str(each["version"]), str(each.get("groupId") or "default"))
