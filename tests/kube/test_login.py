from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import trustme
from kubernetes.config import incluster_config

from dra_sdk.errors import SettingsError, UnreachableError
from dra_sdk.kube import login
from dra_sdk.kube.client import KubeClient
from dra_sdk.kube.login import find_source, log_in
from dra_sdk.testing.waiting import wait
from tests.kube.scripted import Answer, kubeconfig


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def written(path: Path, server: str = "http://one:1") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(kubeconfig(server))
    return path


def test_nothing_at_all_names_what_was_tried(tmp_path):
    with pytest.raises(SettingsError) as caught:
        KubeClient.connect()
    for tried in ("no kubeconfig was given", "$KUBECONFIG", "KUBERNETES_SERVICE_HOST", f"{tmp_path}/home/.kube/config"):
        assert tried in str(caught.value)


def test_the_argument_wins_then_the_environment_then_the_pod_then_home(tmp_path, monkeypatch):
    home = written(tmp_path / "home/.kube/config")
    assert find_source(None).files == (home,)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert find_source(None).files == ()
    assert str(find_source(None)) == "the pod's service account"
    named = written(tmp_path / "env")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{named}")
    assert find_source(None).files == (named,)
    given = written(tmp_path / "given")
    assert find_source(given).files == (given,)


def test_a_named_file_that_is_missing(tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match=rf"kubeconfig {tmp_path}/no cannot be read: No such file"):
        KubeClient.connect(tmp_path / "no")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/nope")
    with pytest.raises(SettingsError, match=rf"\$KUBECONFIG {tmp_path}/nope cannot be read"):
        KubeClient.connect()
    with pytest.raises(SettingsError, match="cannot be read: Is a directory"):
        KubeClient.connect(tmp_path)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "a: [b", "users: []", json.dumps({"current-context": "x", "contexts": []}), "\x00"]
)
def test_a_file_that_is_no_kubeconfig(tmp_path, content: str):
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(SettingsError, match=f"cannot log in with kubeconfig {path}: "):
        KubeClient.connect(path)


def test_a_cluster_without_server(tmp_path):
    path = tmp_path / "config"
    path.write_text(kubeconfig("x").replace('"server": "x"', ""))
    with pytest.raises(SettingsError, match="has no `server`"):
        KubeClient.connect(path)


def test_in_a_pod_without_a_token(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(SettingsError, match=r"the pod's service account: .*token"):
        KubeClient.connect()


def test_in_a_pod_the_token_is_read_again(monkeypatch, tmp_path):
    token, cert = tmp_path / "token", tmp_path / "ca"
    token.write_text("one\n")
    trustme.CA().cert_pem.write_to_path(cert)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(cert))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    source = find_source(None)
    session = log_in(source)
    assert session.url == "https://10.0.0.1:443"
    assert session.authorization() == "bearer one"
    token.write_text("two")
    assert log_in(source).authorization() == "bearer two"


def test_an_exec_plugin_gives_the_token(serve, tmp_path):
    plugin = tmp_path / "plugin"
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-plugin"},
    }
    plugin.write_text(f"#!{sys.executable}\nprint('''{json.dumps(credential)}''')\n")
    plugin.chmod(0o755)
    server = serve(lambda _: Answer())
    user = {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    }
    path = tmp_path / "config"
    path.write_text(kubeconfig(server.url, user))
    client = KubeClient.connect(path)
    client.get("/version")
    client.close()
    assert server.asked[0].headers["Authorization"] == "Bearer from-plugin"


def exec_user(tmp_path: Path, script: str) -> dict[str, Any]:
    """A user whose credentials come from a shell script."""
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(0o755)
    return {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    }


def credential(token: str, **more: str) -> str:
    status = json.dumps({"token": token, **more})
    found = f'{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {status}}}'
    return f"echo '{found}'"


def test_an_exec_plugin_that_fails_is_told_and_nothing_is_sent(serve, connect, tmp_path):
    server = serve(lambda _: Answer())
    with pytest.raises(SettingsError, match=r"cannot log in with kubeconfig .*exec: process returned 3"):
        connect(server.url, exec_user(tmp_path, "exit 3"))
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": f"{tmp_path}/missing"}}
    with pytest.raises(SettingsError, match=r"cannot log in with kubeconfig .*No such file or directory.*missing"):
        connect(server.url, user)
    assert server.asked == []


def test_an_exec_plugin_that_hangs_is_given_up(connect, tmp_path, monkeypatch):
    monkeypatch.setattr(login, "PLUGIN_SECONDS", 0.5)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with pytest.raises(SettingsError, match="the exec plugin or OIDC provider did not answer within 0 s"):
        connect("http://127.0.0.1:1", exec_user(tmp_path, f"cat {gate}"))
    gate.write_text("go on")  # it reads to the end, and its thread ends
    wait(lambda: not any(thread.name == "login" for thread in threading.enumerate()))


def test_a_token_that_has_expired_is_renewed_and_a_plugin_that_fails_then_is_an_api_error(
    serve, connect, tmp_path, monkeypatch
):
    monkeypatch.setattr(login, "TOKEN_SECONDS", 0.0)
    server, said = serve(lambda _: Answer()), tmp_path / "said"
    said.write_text(credential("first", expirationTimestamp="2020-01-01T00:00:00Z"))
    client = connect(server.url, exec_user(tmp_path, f". {said}"))
    said.write_text(credential("second", expirationTimestamp="2020-01-01T00:00:00Z"))
    client.get("/version")
    assert server.asked[-1].headers["Authorization"] == "Bearer second"
    said.write_text("exit 4")
    with pytest.raises(
        UnreachableError, match=r"get /version: .*the token cannot be renewed: exec: process returned 4"
    ):
        client.get("/version")


def test_the_plugin_of_a_token_is_not_asked_for_each_request(serve, connect, tmp_path, monkeypatch):
    monkeypatch.setattr(login, "TOKEN_SECONDS", 600.0)
    server, count = serve(lambda _: Answer()), tmp_path / "count"
    said = credential("token", expirationTimestamp="2020-01-01T00:00:00Z")
    client = connect(server.url, exec_user(tmp_path, f"echo x >> {count}; {said}"))
    for _ in range(20):
        client.get("/version")
    assert len(count.read_text().splitlines()) == 2, "at the login and for the first request"
    assert {each.headers["Authorization"] for each in server.asked} == {"Bearer token"}
