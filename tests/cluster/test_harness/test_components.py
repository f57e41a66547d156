"""The command lines of the components."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.harness import pki
from tests.cluster.harness.api import Api, answers
from tests.cluster.harness.components import Components
from tests.cluster.harness.layout import Layout
from tests.cluster.harness.runtime import Runtime
from tests.cluster.test_harness.states import make_state


def components(layout: Layout, **changes) -> Components:
    api = Api(pki.Authority(layout.pki), "https://127.0.0.1:1")
    return Components(layout, make_state(**changes), Path("/kube"), Runtime.under(Path("/cache")), api)


def test_each_kubernetes_component_gets_the_gates(layout):
    parts = components(layout, gates={"AllBeta": True, "AllAlpha": False, "X": True}).all()
    assert list(parts) == ["etcd", "containerd", "apiserver", "controller-manager", "scheduler", "kubelet"]
    for name in ("apiserver", "controller-manager", "scheduler"):
        assert "--feature-gates=AllAlpha=false,AllBeta=true,X=true" in parts[name].command


@pytest.mark.parametrize(("alpha", "served"), [(True, "api/all=true"), (False, "api/ga=true,api/beta=true")])
def test_alpha_apis_are_served_with_alpha_gates_only(layout, alpha, served):
    parts = components(layout, gates={"AllAlpha": alpha, "AllBeta": True}).all()
    assert f"--runtime-config={served}" in parts["apiserver"].command


def test_components_see_no_proxy_and_the_runtime_first(layout, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example")
    environment = components(layout).environment()
    assert sorted(environment) == ["HOME", "PATH", "TMPDIR"]
    assert environment["PATH"].startswith("/cache/usr/bin:")


def test_probe_of_a_server_that_ends_within_its_answer_is_false():
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        probe = pool.submit(answers, f"http://127.0.0.1:{server.getsockname()[1]}/healthz")
        connection, _ = server.accept()
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\no")
        connection.close()
        assert not probe.result()


def test_probe_of_a_closed_port_is_false():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert not answers(f"http://127.0.0.1:{port}/healthz")
