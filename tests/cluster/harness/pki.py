"""The cluster's certificate authority, made with openssl, and kubeconfig files for the holders of its certificates."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DAYS = 30
CURVE = "prime256v1"
"""Keys are P-256: openssl needs up to a second for an RSA key, and a cluster has ten keys."""
_OPENSSL_CONFIG = """\
[req]
distinguished_name = subject
prompt = no
[subject]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
"""


@dataclass(frozen=True)
class Authority:
    """A certificate authority.

    folder: has its own `ca.crt` and `ca.key`, and `<name>.crt` and `<name>.key` of each certificate that it issued.
    """

    folder: Path

    def create(self) -> None:
        """Makes the authority's own key and certificate."""
        self.folder.mkdir(parents=True, mode=0o700)
        (self.folder / "openssl.cnf").write_text(_OPENSSL_CONFIG)
        self._request("ca", "/CN=dra-sdk-cluster-ca", "authority", [])

    def issue(self, name: str, user: str, *, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> None:
        """Issues a certificate for `user` in `groups` (its CN and O), also valid for servers at `hosts`.

        Each host is in openssl's form, `IP:127.0.0.1` or `DNS:localhost`.
        """
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        more = ["-CA", str(self.certificate("ca")), "-CAkey", str(self.key("ca"))]
        if hosts:
            more += ["-addext", f"subjectAltName={','.join(hosts)}"]
        self._request(name, subject, "leaf", more)

    def signing_key(self, name: str) -> None:
        """Makes the key pair `<name>.key` and `<name>.pub`, without certificate, to sign service-account tokens."""
        private = str(self.key(name))
        _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", f"ec_paramgen_curve:{CURVE}", "-out", private)
        _openssl("pkey", "-in", private, "-pubout", "-out", str(self.folder / f"{name}.pub"))

    def certificate(self, name: str) -> Path:
        """The path of a certificate."""
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        """The path of a private key."""
        return self.folder / f"{name}.key"

    def user(self, name: str) -> dict[str, str]:
        """The `user` entry of a kubeconfig for the holder of certificate `name`."""
        return {"client-certificate": str(self.certificate(name)), "client-key": str(self.key(name))}

    def _request(self, name: str, subject: str, extensions: str, more: list[str]) -> None:
        new_key = ["-newkey", "ec", "-pkeyopt", f"ec_paramgen_curve:{CURVE}", "-nodes", "-keyout", str(self.key(name))]
        options = ["-config", str(self.folder / "openssl.cnf"), "-extensions", extensions, "-days", str(DAYS)]
        _openssl("req", "-x509", *new_key, *options, "-subj", subject, "-out", str(self.certificate(name)), *more)


def kubeconfig(server: str, authority: Path, user: dict[str, str]) -> str:
    """Returns a kubeconfig with one cluster, one user and one context, as JSON (which is YAML)."""
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "dra-sdk", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "dra-sdk", "context": {"cluster": "dra-sdk", "user": "user"}}],
        "current-context": "dra-sdk",
    }
    return json.dumps(content, indent=2) + "\n"


def _openssl(*args: str) -> None:
    done = subprocess.run(["openssl", *args], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(f"openssl {' '.join(args)} failed:\n{done.stderr}")
