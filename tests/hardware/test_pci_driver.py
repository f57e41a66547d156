"""The users of a device node, and PCI functions that get another driver."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dra_sdk import HardwareError, RetriableError
from dra_sdk.hardware.node_access import NodeAccess, SystemEffects, WriteError
from dra_sdk.hardware.pci_driver import (
    PciBinding,
    bind,
    check_returned,
    function_path,
    holders,
    own_pid,
    read_binding,
    restore,
    wait_until_free,
)

CARD = "0000:10:00.0"


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


def test_a_function_gets_another_driver_and_is_restored(make_node):
    node = make_node().access
    before = read_binding(node, CARD)
    assert before == PciBinding(CARD, "card", "")
    bind(node, CARD, "vfio-pci")
    assert read_binding(node, CARD) == PciBinding(CARD, "vfio-pci", "vfio-pci")
    restore(node, before)
    assert read_binding(node, CARD) == before


def test_binding_a_function_to_the_driver_that_it_has_does_nothing(make_node):
    node = make_node()
    bind(node.access, CARD, "card")
    assert node.effects.calls == []


def test_the_module_of_a_driver_is_loaded_once(make_node):
    node = make_node()
    before = read_binding(node.access, CARD)
    for _ in range(2):
        bind(node.access, CARD, "vfio-pci")
        restore(node.access, before)
    assert node.effects.calls.count(f"run chroot {node.root} modprobe vfio-pci") == 1


def test_a_driver_that_the_kernel_lacks_is_an_error_and_changes_nothing(make_node):
    node = make_node()
    node.effects.modules.clear()
    with pytest.raises(HardwareError, match="the kernel has no PCI driver vfio-pci"):
        bind(node.access, CARD, "vfio-pci")
    assert read_binding(node.access, CARD) == PciBinding(CARD, "card", "")


def test_a_driver_that_does_not_take_the_function_is_an_error(make_node, monkeypatch):
    node = make_node()
    monkeypatch.setattr(node.effects, "bind", lambda _path, _address: None)
    with pytest.raises(RetriableError, match=f"PCI function {CARD} has driver none after it was bound to vfio-pci"):
        bind(node.access, CARD, "vfio-pci")


@pytest.mark.parametrize("after", [False, True], ids=["refused", "done"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_after_every_failure_the_function_can_be_restored(make_node, nth, after):
    node = make_node()
    before = read_binding(node.access, CARD)
    node.effects.fail_call(nth, after=after)
    with pytest.raises(RetriableError, match="injected"):
        bind(node.access, CARD, "vfio-pci")
    restore(node.access, before)
    assert read_binding(node.access, CARD) == before


def test_a_function_that_is_gone_needs_no_restoring(make_node):
    node = make_node()
    before = read_binding(node.access, CARD)
    node.path(f"/sys/bus/pci/devices/{CARD}").unlink()
    restore(node.access, before)
    assert node.effects.calls == []


def test_a_function_whose_driver_was_removed_stays_without_driver(make_node, caplog):
    node = make_node()
    before = read_binding(node.access, CARD)
    bind(node.access, CARD, "vfio-pci")
    shutil.rmtree(node.path("/sys/bus/pci/drivers/card"))
    restore(node.access, before)
    assert read_binding(node.access, CARD) == PciBinding(CARD, None, "")
    assert f"PCI function {CARD} stays without driver: the kernel no longer has card" in caplog.text


def test_nothing_is_written_for_a_function_while_a_write_is_pending(make_node):
    node = make_node()
    before = read_binding(node.access, CARD)
    node.effects.hang_write("card/unbind", CARD)
    with pytest.raises(WriteError, match=f"cannot write '{CARD}' to .*/card/unbind: the kernel did not return within"):
        bind(node.access, CARD, "vfio-pci")
    calls = list(node.effects.calls)
    for action in (
        lambda: bind(node.access, CARD, "vfio-pci"),
        lambda: read_binding(node.access, CARD),  # which would wait for the lock of the function as well
        lambda: restore(node.access, before),
    ):
        with pytest.raises(RetriableError, match=f"the kernel does not return from changing PCI function {CARD}: "):
            action()
    check_returned(node.access, "0000:11:00.0")
    assert node.effects.calls == calls
    node.effects.release()
    restore(node.access, before)
    assert read_binding(node.access, CARD) == before


def test_a_pending_write_of_another_node_does_not_concern_this_one(make_node, tmp_path):
    node = make_node()
    node.effects.hang_write("card/unbind", CARD)
    with pytest.raises(WriteError):
        bind(node.access, CARD, "vfio-pci")
    check_returned(NodeAccess(tmp_path / "other", node.effects), CARD)


def test_users_of_a_device_node_are_waited_for_and_named(make_node):
    node = make_node()
    user = node.link("/proc/4711/fd/3", "/dev/card0")
    with pytest.raises(RetriableError, match="card 0 was still in use after 0 s, by processes 4711"):
        wait_until_free(node.access, "card 0", ["/dev/card0"], 0.1)
    wait_until_free(node.access, "card 0", ["/dev/card0"], 0.1, ignored=4711)
    user.unlink()
    wait_until_free(node.access, "card 0", ["/dev/card0"], 0.1)


def test_the_directory_of_a_function(make_node):
    assert (function_path(make_node().access, CARD) / "vendor").read_text() == "0x10de\n"
