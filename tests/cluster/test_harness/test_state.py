"""The state of a cluster, and its ports."""

from __future__ import annotations

import socket

import pytest

from tests.cluster.harness import HarnessError, network
from tests.cluster.harness.processes import Process
from tests.cluster.harness.state import PORTS, State, boot_id, choose_ports
from tests.cluster.test_harness.states import make_state


def test_state_comes_back_as_it_was_saved(layout):
    state = make_state(sysctls={"vm/x": "1"}, ready=True, processes={"etcd": Process(7, 8)})
    state.save(layout.state_file)
    loaded = State.load(layout.state_file)
    assert loaded is not None
    assert loaded.boot == boot_id()
    loaded.boot = ""
    assert loaded == state


def test_state_of_an_earlier_boot_or_none_is_none(layout):
    assert State.load(layout.state_file) is None
    make_state().save(layout.state_file)
    layout.state_file.write_text(layout.state_file.read_text().replace(boot_id(), "another-boot"))
    assert State.load(layout.state_file) is None


def test_broken_state_is_an_error_that_names_the_file(layout):
    layout.state_file.write_text("{")
    with pytest.raises(HarnessError, match=r"state\.json is not JSON"):
        State.load(layout.state_file)


def test_ports_are_free_and_differ():
    ports = choose_ports("127.0.0.1")
    assert sorted(ports) == sorted(PORTS)
    assert len(set(ports.values())) == len(PORTS)


def test_a_port_with_a_listener_is_not_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not network.is_free("127.0.0.1", server.getsockname()[1])
