"""Certificates and kubeconfigs."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.cluster.harness import HarnessError, pki


@pytest.fixture
def authority(tmp_path) -> pki.Authority:
    made = pki.Authority(tmp_path / "pki")
    made.create()
    return made


def context(authority: pki.Authority, protocol: int, name: str) -> ssl.SSLContext:
    """Shows this certificate and trusts those of the authority."""
    made = ssl.SSLContext(protocol)
    made.load_verify_locations(authority.certificate("ca"))
    made.load_cert_chain(authority.certificate(name), authority.key(name))
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def seen_by_server(authority: pki.Authority, host: str) -> dict[str, str]:
    """The subject of the client's certificate, after a handshake in which each side verifies the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context(authority, ssl.PROTOCOL_TLS_SERVER, "server").wrap_bio(to_server, to_client, server_side=True)
    client = context(authority, ssl.PROTOCOL_TLS_CLIENT, "kubelet").wrap_bio(to_client, to_server, server_hostname=host)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return {key: value for ((key, value),) in server.getpeercert()["subject"]}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_authority_issues_what_kubernetes_reads(authority, host):
    authority.issue("server", "server", hosts=["127.0.0.1", "localhost"])
    authority.issue("kubelet", "system:node:n", group="system:nodes")
    subject = seen_by_server(authority, host)
    assert (subject["organizationName"], subject["commonName"]) == ("system:nodes", "system:node:n")


def test_a_certificate_is_for_its_hosts_only(authority):
    authority.issue("server", "server", hosts=["127.0.0.1"])
    authority.issue("kubelet", "system:node:n")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        seen_by_server(authority, "localhost")


def test_only_the_owner_reads_the_keys(authority):
    authority.signing_key("sa")
    authority.issue("server", "server")
    keys = [authority.key(name) for name in ("ca", "sa", "server")]
    assert all(key.read_text().startswith("-----BEGIN EC PRIVATE KEY-----") for key in keys)
    assert {key.stat().st_mode & 0o777 for key in keys} == {0o600}


def test_without_an_authority_there_are_no_certificates(tmp_path):
    with pytest.raises(HarnessError, match="there is no certificate authority in"):
        pki.Authority(tmp_path / "nowhere").issue("x", "x")


def test_kubeconfig_is_yaml_with_one_context():
    text = pki.kubeconfig("https://198.19.0.1:443", Path("/p/ca.crt"), {"token": "t"})
    config = yaml.safe_load(text)
    assert config["clusters"][0]["cluster"] == {
        "server": "https://198.19.0.1:443",
        "certificate-authority": "/p/ca.crt",
    }
    assert config["users"][0]["user"] == {"token": "t"}
    assert config["contexts"][0]["name"] == config["current-context"]
