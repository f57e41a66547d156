"""The pod's own service account: from files and variables, without the `kubernetes` package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from dra_sdk.errors import ApiError, SettingsError
from dra_sdk.kube import in_cluster
from dra_sdk.kube.client import KubeClient
from dra_sdk.kube.in_cluster import InClusterSession
from dra_sdk.kube.login import log_in, namespace_of
from dra_sdk.kube.source import Source
from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.server import HOST, ApiServer, TlsFiles, make_certificates

Serve = Callable[[str], AbstractContextManager[ApiServer]]
ONE_REQUEST = """
import json, sys
from pathlib import Path
from dra_sdk.kube.client import KubeClient
from dra_sdk.kube.login import log_in
from dra_sdk.kube.source import Source
source = Source(account=Path(sys.argv[1]))
client = KubeClient(lambda: log_in(source), source=str(source))
client.get("/version")
client.close()
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture
def tls(tmp_path: Path) -> TlsFiles:
    return make_certificates(tmp_path)


@pytest.fixture
def account(tmp_path: Path, tls: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service account, and the variables of a pod, without a proxy."""
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    made = tmp_path / "account"
    made.mkdir()
    (made / "ca.crt").write_bytes(tls.ca.read_bytes())
    (made / "token").write_text("one\n")
    return made


@pytest.fixture
def serve(tls: TlsFiles, account: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """An API server that takes one token, at the address of the variables."""

    @contextmanager
    def serving(token: str) -> Iterator[ApiServer]:
        with ApiServer(ObjectStore(), tls=tls, token=token) as server:
            monkeypatch.setenv("KUBERNETES_SERVICE_HOST", HOST)
            monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
            yield server
        server.release()

    return serving


def client_of(account: Path) -> KubeClient:
    source = Source(account=account)
    return KubeClient(lambda: log_in(source), source=str(source))


def test_a_request_imports_nothing_of_the_kubernetes_package(account: Path, serve: Serve) -> None:
    with serve("one"):
        done = subprocess.run(
            [sys.executable, "-c", ONE_REQUEST, str(account)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ,
        )
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert "dra_sdk.kube.in_cluster" in loaded
    assert [name for name in loaded if name.partition(".")[0] in {"kubernetes", "urllib3"}] == []
    assert "dra_sdk.kube.kubeconfig" not in loaded


def test_after_a_401_the_token_is_read_again(account: Path, serve: Serve) -> None:
    with serve("two"):
        client = client_of(account)
        (account / "token").write_text("two")
        assert client.get("/version")["major"] == "1"
        client.close()


def test_a_token_that_the_server_does_not_take_names_the_service_account(account: Path, serve: Serve) -> None:
    with serve("two"):
        client = client_of(account)
        with pytest.raises(ApiError, match=r"401.*the pod's service account"):
            client.get("/version")
        client.close()


def test_the_token_is_read_again_by_its_age(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(in_cluster, "monotonic", lambda: now)
    session = InClusterSession(account)
    (account / "token").write_text("two")
    now += in_cluster.TOKEN_SECONDS - 1
    assert session.authorization() == "Bearer one"
    now += 1
    assert session.authorization() == "Bearer two"


def test_a_token_that_cannot_be_read_again_is_used_on(
    account: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(in_cluster, "TOKEN_SECONDS", 0.0)
    session = InClusterSession(account)
    (account / "token").unlink()
    assert session.authorization() == "Bearer one"
    assert f"{account}/token, the service account's token, cannot be read: No such file" in caplog.text
    (account / "token").write_text("two")
    assert session.authorization() == "Bearer two"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("10.0.0.1", "https://10.0.0.1:443"),
        ("fd00::1", "https://[fd00::1]:443"),
        ("kubernetes.default.svc", "https://kubernetes.default.svc:443"),
    ],
)
def test_the_address(account: Path, monkeypatch: pytest.MonkeyPatch, host: str, url: str) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    session = InClusterSession(account)
    assert (session.url, session.server.host, session.server.port, session.base_path) == (url, host, 443, "")


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("HOST", "", "KUBERNETES_SERVICE_HOST is not set"),
        (
            "HOST",
            "[fd00::1]",
            r"KUBERNETES_SERVICE_HOST must be a name or an address without brackets, is '\[fd00::1\]'",
        ),
        ("HOST", "https://10.0.0.1", "KUBERNETES_SERVICE_HOST must be a name or an address"),
        ("PORT", "", "KUBERNETES_SERVICE_PORT must be a port from 1 to 65535, is ''"),
        ("PORT", "0", "KUBERNETES_SERVICE_PORT must be a port"),
        ("PORT", "65536", "KUBERNETES_SERVICE_PORT must be a port"),
        ("PORT", "tcp://10.0.0.1:443", "KUBERNETES_SERVICE_PORT must be a port"),
        ("PORT", "9" * 5000, "KUBERNETES_SERVICE_PORT must be a port"),
        ("PORT", "٤٤٣", "KUBERNETES_SERVICE_PORT must be a port"),
    ],
)
def test_a_variable_that_is_wrong_is_named(
    account: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(f"KUBERNETES_SERVICE_{variable}", value)
    with pytest.raises(SettingsError, match=f"cannot log in with the pod's service account: {said}"):
        log_in(Source(account=account))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("token", None, "the service account's token, cannot be read: No such file"),
        ("token", b"", "the service account's token, is empty"),
        ("token", b" \n", "the service account's token, is empty"),
        ("token", b"one\ntwo", "the service account's token, has several words"),
        ("token", b"\xff\xfe", "the service account's token, cannot be read: it is not ASCII text"),
        ("ca.crt", None, "the CA of the API server, cannot be read: No such file"),
        ("ca.crt", b"", "the CA of the API server, holds no certificate"),
        ("ca.crt", b"-----BEGIN CERTIFICATE-----\n", "the CA of the API server, holds no certificate"),
    ],
)
def test_a_file_that_is_wrong_is_named(account: Path, name: str, content: bytes | None, said: str) -> None:
    (account / name).unlink()
    if content is not None:
        (account / name).write_bytes(content)
    with pytest.raises(SettingsError, match=f"cannot log in with the pod's service account: {account}/{name}, {said}"):
        log_in(Source(account=account))


def test_a_token_that_is_a_directory(account: Path) -> None:
    (account / "token").unlink()
    (account / "token").mkdir()
    with pytest.raises(SettingsError, match=f"{account}/token, .* cannot be read: Is a directory"):
        log_in(Source(account=account))


def test_a_proxy_of_the_environment_is_used_unless_the_server_is_excepted(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert InClusterSession(account).server.proxy == ("proxy", 3128)
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    assert InClusterSession(account).server.proxy is None


def test_the_namespace_of_the_pod(account: Path) -> None:
    assert namespace_of(Source(account=account)) == "default"
    (account / "namespace").write_text("drivers\n")
    assert namespace_of(Source(account=account)) == "drivers"
