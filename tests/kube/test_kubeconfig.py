"""Credentials of kubeconfig files: bad ones, and exec plugins that fail, hang or renew a token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.errors import SettingsError, UnreachableError
from dra_sdk.kube import kubeconfig as kubeconfig_files
from dra_sdk.kube import login_calls
from dra_sdk.kube.client import KubeClient
from dra_sdk.testing.waiting import LONG, wait
from tests.kube.scripted import Answer, kubeconfig
from tests.template.pages import ROOT, blocks


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


def test_the_kubeconfig_of_the_page_about_installing_has_its_token_in_a_file(serve, tmp_path):
    (text,) = [text for _, text in blocks(ROOT / "docs/install.md") if "tokenFile" in text]
    server, token = serve(lambda _: Answer()), tmp_path / "token"
    token.write_text("bound-to-the-node")
    replaced = {
        "https://10.0.0.5:6443": server.url,
        "/etc/dra-sdk/token": str(token),
        ", certificate-authority: /etc/dra-sdk/ca.crt": "",
    }
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "config").write_text(text)
    client = KubeClient.connect(tmp_path / "config")
    client.get("/version")
    client.close()
    assert server.asked[0].headers["Authorization"] == "Bearer bound-to-the-node"


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


def test_an_exec_plugin_that_hangs_is_ended_with_all_that_it_started(connect, tmp_path, monkeypatch):
    monkeypatch.setattr(login_calls, "PLUGIN_SECONDS", 0.5)
    log = tmp_path / "pids"
    plugin = exec_user(tmp_path, f"echo $$ >> {log}; sh -c 'echo $$ >> {log}; sleep 600 & wait'; true")
    with pytest.raises(SettingsError, match="exec plugin or OIDC provider did not answer within 0 s and was ended"):
        connect("http://127.0.0.1:1", plugin)
    wait_for_no_login()
    pids = [int(line) for line in log.read_text().split()]
    assert len(pids) == 2
    wait(lambda: not any(runs(pid) for pid in pids))
    assert not login_calls.end_plugins(), "also what it had started is gone"


def test_what_is_no_plugin_goes_on(monkeypatch):
    monkeypatch.delenv("KUBERNETES_EXEC_INFO", raising=False)
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            login_calls.end_plugins()
            assert other.poll() is None
        finally:
            other.kill()


def test_a_second_call_waits_for_the_first_and_no_longer_than_a_plugin_may_take(connect, tmp_path, monkeypatch):
    monkeypatch.setattr(login_calls, "PLUGIN_SECONDS", LONG)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"echo x >> {tmp_path}/calls; cat {gate}; {credential('token')}"
    with ThreadPoolExecutor(1) as pool:
        login = pool.submit(connect, "http://127.0.0.1:1", exec_user(tmp_path, script))
        wait((tmp_path / "calls").exists)
        monkeypatch.setattr(login_calls, "PLUGIN_SECONDS", 0.2)
        with pytest.raises(SettingsError, match="has not answered an earlier call for 0 s"):
            KubeClient.connect(tmp_path / "kubeconfig")
        monkeypatch.setattr(login_calls, "PLUGIN_SECONDS", LONG)
        gate.write_text("")
        login.result(LONG)
    assert (tmp_path / "calls").read_text() == "x\n", "one plugin at a time"


def test_closing_ends_the_plugin_that_a_request_waits_for(serve, connect, tmp_path, monkeypatch):
    monkeypatch.setattr(login_calls, "PLUGIN_SECONDS", LONG)
    monkeypatch.setattr(kubeconfig_files, "TOKEN_SECONDS", 0.0)
    server, said, pid = serve(lambda _: Answer()), tmp_path / "said", tmp_path / "pid"
    said.write_text(credential("first", expirationTimestamp="2020-01-01T00:00:00Z"))
    client = connect(server.url, exec_user(tmp_path, f". {said}"))
    said.write_text(f"sleep 600 & echo $! > {pid}; wait")
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(client.get, "/version")
        wait(lambda: pid.exists() and pid.read_text().endswith("\n"))
        client.close()
        with pytest.raises(UnreachableError, match="the token cannot be renewed: exec: process returned"):
            request.result(LONG)
    wait(lambda: not runs(int(pid.read_text())))


def test_what_a_plugin_writes_and_passwords_in_urls_are_in_no_error_and_no_log(connect, tmp_path, caplog):
    with pytest.raises(SettingsError, match=r"exec: process returned 3 \(what it wrote is not shown here\)") as error:
        connect("http://127.0.0.1:1", exec_user(tmp_path, "echo 'Bearer s3cret' >&2; exit 3"))
    assert "s3cret" not in str(error.value)
    for wrote, message in (
        ('{"apiVersion": "s3cret", "kind": "ExecCredential", "status": {}}', "exec: plugin api version"),
        (credential("t", expirationTimestamp="s3cret")[6:-1], "Invalid RFC3339 datetime:"),
    ):
        with pytest.raises(SettingsError, match=rf"{message} \(what it wrote is not shown here\)") as error:
            connect("http://127.0.0.1:1", exec_user(tmp_path, f"echo '{wrote}'"))
        assert "s3cret" not in str(error.value)
    for url, user in (
        ("ftp://me:s3cret@127.0.0.1:1", {}),
        ("s3cret@127.0.0.1:99999999/x", {}),
    ):
        with pytest.raises(SettingsError, match="is not an http or https URL") as error:
            connect(url, user)
        assert "s3cret" not in str(error.value)
    client = connect("http://me:s3cret@127.0.0.1:1/base", {})
    assert client.server == "http://127.0.0.1:1/base"
    with pytest.raises(UnreachableError, match=r"no answer from http://127\.0\.0\.1:1/base") as unreachable:
        client.get("/version")
    assert "s3cret" not in str(unreachable.value)
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("token", "problem"), [("s3cret\\u2603", "not Latin-1"), ("s3cret\\u000aX: y", "a line break")]
)
def test_a_token_that_is_no_header_field_is_an_api_error_without_it(serve, connect, tmp_path, token: str, problem: str):
    server = serve(lambda _: Answer())
    client = connect(server.url, exec_user(tmp_path, credential("TOKEN").replace("TOKEN", token)))
    with pytest.raises(UnreachableError, match=f"a header field of the request holds .*{problem}") as error:
        client.get("/version")
    assert token.partition("\\")[0] not in "".join(traceback.format_exception(error.value))
    assert server.asked == []


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def wait_for_no_login() -> None:
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
