"""The users of a device node, and PCI functions that get another driver."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dra_sdk import RetriableError
from dra_sdk.hardware.node_access import NodeAccess, SystemEffects
from dra_sdk.hardware.pci_driver import bind, holders, own_pid, read_binding, restore

GPU = "0000:10:00.0"


def test_a_process_that_has_a_file_open_is_found_on_this_machine(tmp_path):
    machine, held = NodeAccess(Path("/"), SystemEffects()), tmp_path / "held"
    with held.open("w"):
        assert holders(machine, str(held)) == [os.getpid()]
    assert holders(machine, str(held)) == []


def test_the_own_pid_is_that_of_the_host(tmp_path):
    assert own_pid(NodeAccess(Path("/"), SystemEffects())) == os.getpid()
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/self").symlink_to("4711")
    assert own_pid(NodeAccess(tmp_path, SystemEffects())) == 4711


def test_a_function_gets_another_driver_and_is_restored(make_gpus):
    rig = make_gpus("L4")
    before = read_binding(rig.nvidia_node, GPU)
    assert (before.driver, before.override) == ("nvidia", "")
    bind(rig.nvidia_node, GPU, "vfio-pci")
    assert read_binding(rig.nvidia_node, GPU).driver == "vfio-pci"
    restore(rig.nvidia_node, before)
    assert read_binding(rig.nvidia_node, GPU) == before


def test_a_driver_that_does_not_take_the_function_is_an_error(make_gpus, monkeypatch):
    rig = make_gpus("L4")
    monkeypatch.setattr(rig.effects, "bind", lambda _path, _address: None)
    with pytest.raises(RetriableError, match=f"PCI function {GPU} has driver none after it was bound to vfio-pci"):
        bind(rig.nvidia_node, GPU, "vfio-pci")


def test_a_function_that_is_gone_needs_no_restoring(make_gpus):
    rig = make_gpus("L4")
    before = read_binding(rig.nvidia_node, GPU)
    rig.node.path(f"/sys/bus/pci/devices/{GPU}").unlink()
    restore(rig.nvidia_node, before)
    assert rig.effects.calls == []
