"""Credentials of kubeconfig files: bad ones, and exec plugins that fail, hang or renew a token."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.errors import SettingsError, UnreachableError
from dra_sdk.kube import kubeconfig as kubeconfig_files
from dra_sdk.kube.client import KubeClient
from dra_sdk.testing.waiting import wait
from tests.kube.scripted import Answer, kubeconfig


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
    monkeypatch.setattr(kubeconfig_files, "PLUGIN_SECONDS", 0.5)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with pytest.raises(SettingsError, match="the exec plugin or OIDC provider did not answer within 0 s"):
        connect("http://127.0.0.1:1", exec_user(tmp_path, f"cat {gate}"))
    gate.write_text("go on")  # it reads to the end, and its thread ends
    wait(lambda: not any(thread.name == "login" for thread in threading.enumerate()))


def test_an_expired_token_is_renewed_and_a_failing_plugin_an_api_error(serve, connect, tmp_path, monkeypatch):
    monkeypatch.setattr(kubeconfig_files, "TOKEN_SECONDS", 0.0)
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
    monkeypatch.setattr(kubeconfig_files, "TOKEN_SECONDS", 600.0)
    server, count = serve(lambda _: Answer()), tmp_path / "count"
    said = credential("token", expirationTimestamp="2020-01-01T00:00:00Z")
    client = connect(server.url, exec_user(tmp_path, f"echo x >> {count}; {said}"))
    for _ in range(20):
        client.get("/version")
    assert len(count.read_text().splitlines()) == 2, "at the login and for the first request"
    assert {each.headers["Authorization"] for each in server.asked} == {"Bearer token"}
