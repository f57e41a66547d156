from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.tools.simulator import certificates
from dra_sdk.tools.simulator.history import encode
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.server import ApiServer
from tests.tools.simulator.conftest import SLICES, Http, claim_object, slice_object
from tests.waiting import LONG

MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


class TestAccess:
    def test_a_token_is_asked_for(self, store: ObjectStore) -> None:
        with ApiServer(store, token="secret") as server:
            http = Http(server)
            code, status = http("GET", SLICES)
            assert (code, status["reason"]) == (401, "Unauthorized")
            assert http("GET", SLICES, Authorization="Bearer wrong")[0] == 401
            assert http("GET", SLICES, Authorization="Bearer secret")[0] == 200

    def test_https(self, store: ObjectStore, local: LocalClient, tmp_path: Path) -> None:
        files = certificates.make(tmp_path)
        context = ssl.create_default_context(cafile=files.ca)
        with ApiServer(store, tls=files) as server:
            with urllib.request.urlopen(f"{server.url}/api/v1/namespaces/default", context=context) as response:
                assert json.load(response)["metadata"]["name"] == "default"
            watch = urllib.request.urlopen(f"{server.url}{SLICES}?watch=true", context=context, timeout=LONG)
            created = local.create("resourceslices", slice_object("a"))
            assert json.loads(watch.readline())["object"] == created
            server.stop()
            assert watch.readline() == b""
            watch.close()

    def test_a_client_that_does_not_trust_it_does_no_harm(self, store: ObjectStore, tmp_path: Path) -> None:
        files = certificates.make(tmp_path)
        with ApiServer(store, tls=files) as server, pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(server.url, timeout=LONG)

    def test_without_openssl_the_error_says_so(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(certificates.CertificateError, match="openssl"):
            certificates.make(tmp_path)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
class TestKubectl:
    @pytest.fixture
    def kubectl(self, store: ObjectStore, local: LocalClient, tmp_path: Path) -> Iterator[Any]:
        with ApiServer(store, tls=certificates.make(tmp_path), token="secret") as server:
            config = server.write_kubeconfig(tmp_path / "kubeconfig")

            def run(*arguments: str, stdin: str = "") -> str:
                cache = ("--cache-dir", str(tmp_path / "cache"))
                done = subprocess.run(
                    ["kubectl", "--kubeconfig", str(config), *cache, *arguments],
                    input=stdin,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                    env={**os.environ, "HOME": str(tmp_path)},
                )
                assert done.returncode == 0, done.stderr
                return done.stdout

            assert config.stat().st_mode & 0o777 == 0o600
            yield run

    def test_objects(self, kubectl: Any, local: LocalClient) -> None:
        local.create("resourceslices", slice_object("slice-a"))
        assert "slice-a" in kubectl("get", "resourceslices")
        manifest = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim_object()}
        created = kubectl("create", "--validate=false", "-f", "-", stdin=encode(manifest).decode())
        assert "claim-1 created" in created
        kubectl("label", "resourceclaims", "claim-1", "a=b")
        assert json.loads(kubectl("get", "resourceclaims", "claim-1", "-o", "json"))["metadata"]["labels"] == {"a": "b"}
        assert "claim-1" in kubectl("delete", "resourceclaims", "claim-1")
        assert not local.list("resourceclaims")
