"""Certificates and kubeconfigs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cluster.harness import HarnessError, pki


def openssl(*args) -> str:
    return subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, text=True).stdout


def test_authority_issues_what_kubernetes_reads(tmp_path):
    authority = pki.Authority(tmp_path / "pki")
    authority.create()
    authority.issue("kubelet", "system:node:n", groups=["system:nodes"], hosts=["IP:127.0.0.1", "DNS:localhost"])
    certificate = authority.certificate("kubelet")
    for purpose in ("sslclient", "sslserver"):
        openssl("verify", "-CAfile", authority.certificate("ca"), "-purpose", purpose, certificate)
    assert openssl("x509", "-in", certificate, "-noout", "-subject") == "subject=O = system:nodes, CN = system:node:n\n"
    details = openssl("x509", "-in", certificate, "-noout", "-text")
    assert "CA:FALSE" in details
    assert "DNS:localhost" in details
    assert "IP Address:127.0.0.1" in details


def test_signing_key_comes_with_its_public_half(tmp_path):
    authority = pki.Authority(tmp_path)
    authority.signing_key("sa")
    assert openssl("pkey", "-in", authority.key("sa"), "-pubout") == (tmp_path / "sa.pub").read_text()


def test_the_error_of_openssl_has_its_output(tmp_path):
    authority = pki.Authority(tmp_path / "nowhere")
    with pytest.raises(HarnessError, match=r"openssl req .* failed:\n.+"):
        authority.issue("x", "x")


def test_kubeconfig_is_yaml_with_one_context():
    text = pki.kubeconfig("https://198.19.0.1:443", Path("/p/ca.crt"), {"token": "t"})
    config = yaml.safe_load(text)
    assert config["clusters"][0]["cluster"] == {
        "server": "https://198.19.0.1:443",
        "certificate-authority": "/p/ca.crt",
    }
    assert config["users"][0]["user"] == {"token": "t"}
    assert config["contexts"][0]["name"] == config["current-context"]
