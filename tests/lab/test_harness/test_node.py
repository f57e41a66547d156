"""What the node needs to join. `make test-lab` joins it."""

from __future__ import annotations

import json

import pytest

from tests.cluster.harness import pki
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.progress import Progress
from tests.lab.harness import node
from tests.lab.harness.node import Node, NodeLayout
from tests.lab.harness.plane import ADDRESS, NODE, NodePlane


class Plane:
    """A control plane that does not run."""

    version, server = "1.36.3", "https://127.0.0.1:31234"

    def __init__(self, authority):
        self.authority = authority


@pytest.fixture
def plane(tmp_path):
    authority = pki.Authority(tmp_path / "pki")
    authority.create()
    for name in ("admin", "server", NODE, "scheduler"):
        authority.issue(name, name)
    return NodePlane(Plane(authority), {"AllBeta": True}, {})


def test_the_node_gets_its_own_keys_and_those_that_its_tests_need(plane, tmp_path):
    plane.hand_over(tmp_path)
    assert plane.port == 31234
    content = json.loads((tmp_path / "plane/plane.json").read_text())
    assert content == {"version": "1.36.3", "gates": {"AllBeta": True}}
    files = {path.name for path in (tmp_path / "plane/pki").iterdir()}
    assert files == {"ca.crt", *(f"{name}.{kind}" for name in ("admin", "server", NODE) for kind in ("crt", "key"))}


def test_only_the_virtual_machine_joins(tmp_path, monkeypatch):
    monkeypatch.setattr(node, "RESULTS", str(tmp_path))
    with pytest.raises(HarnessError, match="only the virtual machine"):
        Node.join(Progress())


def test_the_node_has_addresses_of_the_network_of_qemu():
    layout = NodeLayout.of("lab")
    assert (layout.node_name, layout.service_address, layout.node_address) == (NODE, ADDRESS, "10.0.2.15")
