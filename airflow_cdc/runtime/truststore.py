"""truststore: the machine's certificate authorities in Java's format."""

from __future__ import annotations

import hashlib
import re
import ssl
import struct
from pathlib import Path

_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),  # Debian, Alpine
    Path("/etc/pki/tls/certs/ca-bundle.crt"),  # Red Hat
    Path("/etc/ssl/cert.pem"),  # macOS
)
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_MAGIC, _VERSION, _TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2
_PASSWORD = "changeit"  # Java's own default; the list is public, the password guards nothing.


def certificate_bundle() -> Path | None:
    """Return the file of certificate authorities that the machine trusts; None where it has none.

    Python's own default takes precedence: it follows ``SSL_CERT_FILE``.
    """
    default = ssl.get_default_verify_paths().cafile
    return next((path for path in (*([Path(default)] if default else []), *_BUNDLES) if path.is_file()), None)


def truststore(pem: str) -> bytes:
    """Return a Java keystore (JKS) that trusts every certificate of a PEM text.

    Built here because ``keytool`` takes one certificate per call, half a second each.
    """
    certificates = [ssl.PEM_cert_to_DER_cert(text) for text in _CERTIFICATE.findall(pem)]
    entries = [_entry(f"machine-{number}", certificate) for number, certificate in enumerate(certificates)]
    body = struct.pack(">III", _MAGIC, _VERSION, len(entries)) + b"".join(entries)
    # The salt is part of the format.
    digest = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False).digest()
    return body + digest


def _entry(alias: str, certificate: bytes) -> bytes:
    created_at = struct.pack(">Q", 0)
    header = struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(alias) + created_at + _text("X.509")
    return header + struct.pack(">I", len(certificate)) + certificate


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode("ascii")
