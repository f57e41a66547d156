"""What goes wrong between the driver and the real kernel, and that all of it is undone or waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from subprocess import run

import pytest
from dra_driver_gpu.blocks.node_access import WriteError

from dra_sdk import DraError, RetriableError
from dra_sdk.testing import claim, request
from dra_sdk.testing.crashes import assert_survives_crashes
from tests.lab.inside.functions import BUS
from tests.lab.inside.rig import CLASS
from tests.lab.inside.vfio_user import VfioUser

BIND = BUS / "drivers/vfio-pci/bind"


def vm():
    return claim(request("vm", device_class=CLASS))


def test_a_group_that_is_held_open_is_waited_for_and_its_holder_named(rig, gpu):
    prepared = rig.prepare(vm())
    (node,) = prepared.container().devices
    with VfioUser(gpu.address, node) as user:
        with pytest.raises(RetriableError) as told:
            rig.unprepare(prepared)
        assert str(told.value).endswith(f"GPU {gpu.address} was still in use after 1 s, by processes {os.getpid()}")
        assert gpu.driver == "vfio-pci"
        assert user.ids()[1] == int(gpu.text("device"), 16)
    rig.unprepare(prepared)
    assert gpu.state() == ("igb", "", True)


HOLDER = """
import sys
from tests.lab.inside.vfio_user import VfioUser
user = VfioUser(*sys.argv[1:])
user.close_group()
print("holds", user.ids(), flush=True)
sys.stdin.read()
"""


def test_a_device_that_is_held_by_itself_is_waited_for(rig, gpu):
    """No list of open files says so, and whoever unbinds waits in the kernel. The group is busy, that can be seen."""
    prepared = rig.prepare(vm())
    (node,) = prepared.container().devices
    command = [sys.executable, "-c", HOLDER, gpu.address, node]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline().startswith("holds")
        with pytest.raises(RetriableError, match=f"GPU {gpu.address} was still in use after 1 s, by"):
            rig.unprepare(prepared)
        assert gpu.driver == "vfio-pci"
        holder.stdin.close()
    rig.unprepare(prepared)


def test_another_driver_override_holds_when_it_is_bound(rig, gpu):
    """The kernel refuses: an operator writes to the same file at the same moment."""

    def meddle(path: Path, _text: str) -> None:
        if path == BIND:
            (gpu.path / "driver_override").write_text("nouveau\n")

    rig.kernel.before = meddle
    asked = rig.allocate(vm())
    with pytest.raises(DraError, match=f"cannot write '{gpu.address}' to {BIND}: No such device"):
        rig.prepare(asked)
    assert gpu.state() == ("igb", "", True)
    rig.assert_clean()
    rig.kernel.before = lambda _path, _text: None
    rig.unprepare(rig.prepare(asked))


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_write_that_fails_half_way_is_undone(rig, gpu, nth):
    asked = rig.allocate(vm())

    def fail(path: Path, text: str) -> None:
        if rig.kernel.writes == nth:
            raise WriteError(f"cannot write {text!r} to {path}: injected")

    rig.kernel.before = fail
    with pytest.raises(DraError, match="injected"):
        rig.prepare(asked)
    assert gpu.state() == ("igb", "", True)
    rig.assert_clean()


def test_its_former_driver_is_gone_when_it_comes_back(rig, gpu):
    prepared = rig.prepare(vm())
    run(["modprobe", "--remove", "igb"], check=True)
    try:
        with pytest.raises(DraError, match=f"cannot write '{gpu.address}' to {BUS}/drivers/igb/bind: No such file"):
            rig.unprepare(prepared)
        assert [each.uid for each in rig.held] == [prepared.ref.uid]
    finally:
        run(["modprobe", "igb"], check=True)
    rig.unprepare(prepared)
    assert gpu.state() == ("igb", "", True)
    rig.assert_clean()


@pytest.mark.timeout(900)
def test_it_survives_being_killed_at_every_step(rig, gpu, monkeypatch, capsys):
    state = lambda _root: {gpu.address: repr(gpu.state())}  # noqa: E731
    monkeypatch.setattr("dra_sdk.testing.crashes.tree", state)
    killed = assert_survives_crashes(rig, vm(), lines=False)
    with capsys.disabled():
        print(f"\nkilled {killed} times")
    assert killed == 2 * (3 + 1) + 2 * (3 + 1 + 1)  # writes and one after `bind`, of prepare and of unprepare
