"""The cluster's certificate authority, and kubeconfig files for the holders of its certificates."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import trustme

ORGANIZATION = "dra-sdk"
"""The group of users that have no other: Kubernetes reads the organization of a certificate as a group."""


@dataclass(frozen=True)
class Authority:
    """A certificate authority.

    folder: has its own `ca.crt` and `ca.key`, and `<name>.crt` and `<name>.key` of each certificate that it issued.
    """

    folder: Path

    def create(self) -> None:
        """Makes the authority's own key and certificate."""
        import trustme  # noqa: PLC0415 (`harness packages` runs before packages are installed)

        self.folder.mkdir(parents=True, mode=0o700)
        authority = trustme.CA(organization_name=ORGANIZATION)
        authority.cert_pem.write_to_path(self.certificate("ca"))
        self._write_key("ca", authority.private_key_pem)

    def issue(self, name: str, user: str, *, group: str = ORGANIZATION, hosts: Sequence[str] = ("localhost",)) -> None:
        """Issues a certificate for `user` in `group` (Kubernetes reads CN and O), valid as a server for `hosts`.

        A host is an IP address or a name.
        """
        import trustme  # noqa: PLC0415 (as above)

        try:
            authority = trustme.CA.from_pem(self.certificate("ca").read_bytes(), self.key("ca").read_bytes())
        except OSError as error:
            raise HarnessError(f"there is no certificate authority in {self.folder}: {error}") from error
        issued = authority.issue_cert(*hosts, common_name=user, organization_name=group)
        issued.cert_chain_pems[0].write_to_path(self.certificate(name))
        self._write_key(name, issued.private_key_pem)

    def signing_key(self, name: str) -> None:
        """Makes a private key without certificate, `<name>.key`, to sign and verify service-account tokens."""
        import trustme  # noqa: PLC0415 (as above)

        self._write_key(name, trustme.CA().private_key_pem)

    def certificate(self, name: str) -> Path:
        """The path of a certificate."""
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        """The path of a private key."""
        return self.folder / f"{name}.key"

    def user(self, name: str) -> dict[str, str]:
        """The `user` entry of a kubeconfig for the holder of certificate `name`."""
        return {"client-certificate": str(self.certificate(name)), "client-key": str(self.key(name))}

    def _write_key(self, name: str, key: trustme.Blob) -> None:
        self.key(name).touch(mode=0o600)
        key.write_to_path(self.key(name))


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
