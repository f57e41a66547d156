"""Failures between the driver and the real kernel: the driver undoes its work, or waits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from subprocess import run

import pytest

from dra_sdk import DraError, RetriableError
from dra_sdk.hardware.node_access import WriteError
from dra_sdk.testing import claim, request
from dra_sdk.testing.crashes import assert_survives_crashes
from dra_sdk.testing.waiting import wait
from tests.lab.inside.functions import BUS
from tests.lab.inside.rig import CLASS
from tests.lab.inside.vfio_user import VfioUser

BIND = BUS / "drivers/vfio-pci/bind"


def vm():
    return claim(request("vm", device_class=CLASS))


def test_a_group_that_is_open_is_waited_for_and_its_process_named(rig, gpu):
    prepared = rig.prepare(vm())
    (node,) = prepared.container().devices
    with VfioUser(gpu.address, node) as user:
        with pytest.raises(RetriableError) as error:
            rig.unprepare(prepared)
        assert str(error.value).endswith(f"GPU {gpu.address} was still in use after 1 s, by processes {os.getpid()}")
        assert gpu.driver == "vfio-pci"
        assert user.ids()[1] == int(gpu.text("device"), 16)
    rig.unprepare(prepared)
    assert gpu.state() == ("igb", "", True)


HOLD_THE_DEVICE = """
import sys
from tests.lab.inside.vfio_user import VfioUser
from dra_sdk.testing.waiting import wait
user = VfioUser(*sys.argv[1:])
user.close_group()
print("holds", user.ids(), flush=True)
sys.stdin.read()
"""


def test_a_device_that_a_process_has_open_without_its_group_is_waited_for(rig, gpu):
    """The list of open files does not show it, and the kernel blocks the unbinding. That the group is busy shows it."""
    prepared = rig.prepare(vm())
    (node,) = prepared.container().devices
    command = [sys.executable, "-c", HOLD_THE_DEVICE, gpu.address, node]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline().startswith("holds")
        with pytest.raises(RetriableError, match=f"GPU {gpu.address} was still in use after 1 s, by"):
            rig.unprepare(prepared)
        assert gpu.driver == "vfio-pci"
        holder.stdin.close()
    rig.unprepare(prepared)


def test_the_kernel_refuses_to_bind_if_another_override_is_set_meanwhile(rig, gpu):
    def set_override(path: Path, _text: str) -> None:
        if path == BIND:
            (gpu.path / "driver_override").write_text("nouveau\n")

    rig.kernel.before = set_override
    asked = rig.allocate(vm())
    with pytest.raises(DraError, match=f"cannot write '{gpu.address}' to {BIND}: No such device"):
        rig.prepare(asked)
    assert gpu.state() == ("igb", "", True)
    rig.assert_clean()
    rig.kernel.before = lambda _path, _text: None
    rig.unprepare(rig.prepare(asked))


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_the_writes_before_one_that_fails_are_undone(rig, gpu, nth):
    asked = rig.allocate(vm())

    def fail(path: Path, text: str) -> None:
        if rig.kernel.writes == nth:
            raise WriteError(f"cannot write {text!r} to {path}: injected")

    rig.kernel.before = fail
    with pytest.raises(DraError, match="injected"):
        rig.prepare(asked)
    assert gpu.state() == ("igb", "", True)
    rig.assert_clean()


def test_a_former_driver_gets_the_function_when_it_is_loaded_again(rig, gpu, caplog):
    """The claim ends without it: a pod must not wait for a driver that somebody removed."""
    prepared = rig.prepare(vm())
    run(["modprobe", "--remove", "igb"], check=True)
    try:
        rig.unprepare(prepared)
        assert f"PCI function {gpu.address} stays without driver: the kernel no longer has igb" in caplog.text
        assert gpu.state() == (None, "", False)
        rig.assert_clean()
    finally:
        run(["modprobe", "igb"], check=True)
    wait(lambda: gpu.state() == ("igb", "", True))


def test_it_survives_being_killed_at_every_step(rig, gpu, monkeypatch, capsys):
    state = lambda _root: {gpu.address: repr(gpu.state())}  # noqa: E731
    monkeypatch.setattr("dra_sdk.testing.crashes.tree", state)
    killed = assert_survives_crashes(rig, vm(), lines=False)
    with capsys.disabled():
        print(f"\nkilled {killed} times")
    assert killed == 2 * (3 + 1) + 2 * (3 + 1 + 1)  # the writes and one point after `bind`; of prepare and of unprepare
