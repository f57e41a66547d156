"""A certificate authority and a server certificate for the simulated API server, made by the `openssl` command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dra_sdk.errors import DraError

if TYPE_CHECKING:
    from pathlib import Path

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_SERVER_EXTENSIONS = (
    "subjectAltName=IP:127.0.0.1,DNS:localhost\n"
    "basicConstraints=critical,CA:FALSE\n"
    "keyUsage=critical,digitalSignature\n"
    "extendedKeyUsage=serverAuth\n"
    "subjectKeyIdentifier=hash\n"
    "authorityKeyIdentifier=keyid\n"
)


class CertificateError(DraError):
    """The `openssl` command is missing or refused; the message has what it printed."""


@dataclass(frozen=True)
class TlsFiles:
    """PEM files of an HTTPS endpoint: what clients trust, and the server's own certificate and key."""

    ca: Path
    certificate: Path
    key: Path


def make(directory: Path) -> TlsFiles:
    """Makes fresh files in `directory` for 127.0.0.1 and localhost, valid a day; `CertificateError` where it fails."""
    ca, ca_key, request = directory / "ca.crt", directory / "ca.key", directory / "server.csr"
    certificate, key, extensions = directory / "server.crt", directory / "server.key", directory / "server.ext"
    extensions.write_text(_SERVER_EXTENSIONS)
    authority = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    _openssl(
        "req", "-x509", "-days", "1", *_CURVE, *authority, "-subj", "/CN=simulator-ca", "-keyout", ca_key, "-out", ca
    )
    _openssl("req", "-new", *_CURVE, "-subj", "/CN=simulator", "-keyout", key, "-out", request)
    signing = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-extfile", extensions)
    _openssl("x509", "-req", "-days", "1", "-in", request, *signing, "-out", certificate)
    return TlsFiles(ca, certificate, key)


def _openssl(*arguments: str | Path) -> None:
    command = ["openssl", *map(str, arguments)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise CertificateError("HTTPS needs the openssl command, which is not on PATH") from None
    except subprocess.CalledProcessError as error:
        raise CertificateError(f"openssl {arguments[0]} failed: {error.stderr.strip()}") from None
