"""What is done to a fake node: recorded, refused, done and refused, or never answered."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.hardware.node_access import Command, CommandError, WriteError
from dra_sdk.testing import FakeEffects, FakeNode
from dra_sdk.testing.sysfs import FakePci, regular_machine
from dra_sdk.testing.waiting import wait

CARD = "0000:10:00.0"


@pytest.fixture
def node(tmp_path):
    made = FakeNode(tmp_path)
    card = FakePci(address=CARD, driver="card", iommu_group=20)
    made.machine(replace(regular_machine(cores=1, threads=1), pci=(card, replace(card, address="0000:10:00.1"))))
    made.file("/sys/power", "on")
    yield made
    made.effects.kill(made.effects.running_daemons(), force=True)


def test_every_action_is_recorded(node, tmp_path):
    node.effects.write(node.path("/sys/power"), "off\n")
    assert node.effects.run(Command(["cat"], "x")) == "x"
    node.effects.start(Command(["sleep", "60"]), tmp_path / "log")
    assert node.effects.calls == ["write sys/power", "run cat < x", "start sleep 60"]
    assert [command.argv for command in node.effects.commands] == [["cat"], ["sleep", "60"]]
    assert node.path("/sys/power").read_text() == "off"
    assert len(node.effects.running_daemons()) == 1


def test_an_action_fails_before_or_after_its_effect(node, tmp_path):
    file = tmp_path / "file"
    actions = (
        (
            lambda: node.effects.write(node.path("/sys/power"), "off"),
            lambda: node.path("/sys/power").read_text() != "on",
        ),
        (lambda: node.effects.run(Command(["touch", str(file)])), file.exists),
        (lambda: node.effects.start(Command(["sleep", "60"]), tmp_path / "log"), node.effects.running_daemons),
    )
    for act, done in actions:
        for after in (False, True):
            node.effects.fail_call(1, after=after)
            with pytest.raises((WriteError, CommandError), match="injected"):
                act()
            assert bool(done()) is after
        node.effects.fail_call(1)
        node.effects.clear()
        act()


def test_only_the_nth_call_fails(node):
    power = node.path("/sys/power")
    node.effects.fail_call(2)
    node.effects.write(power, "1")
    with pytest.raises(WriteError, match=f"cannot write '2' to {power}: injected"):
        node.effects.write(power, "2")
    node.effects.write(power, "3")
    assert power.read_text() == "3"


def test_a_write_that_hangs_takes_effect_when_the_kernel_returns(node):
    power = node.path("/sys/power")
    node.effects.hang_write("sys/power", "off")
    node.effects.write(power, "standby", 5)
    with pytest.raises(WriteError, match=f"cannot write 'off' to {power}: the kernel did not return within 5 s"):
        node.effects.write(power, "off\n", 5)
    (pending,) = node.effects.pending()
    assert (pending.path, pending.text, pending.pid) == (power, "off\n", os.getpid())
    with pytest.raises(WriteError, match="has been writing 'off' to"):
        node.effects.write(power, "off\n", 5)
    assert power.read_text() == "standby"
    node.effects.release()
    assert (power.read_text(), node.effects.pending()) == ("off", [])


def test_a_write_without_timeout_hangs_until_the_kernel_returns(node):
    power = node.path("/sys/power")
    node.effects.hang_call(1)
    writer = threading.Thread(target=node.effects.write, args=(power, "off"))
    writer.start()
    wait(node.effects.pending)
    node.effects.release()
    writer.join()
    assert power.read_text() == "off"


def test_a_program_that_hangs_ends_with_its_timeout(node):
    node.effects.hang_call(2)
    node.effects.run(Command(["true"]))
    with pytest.raises(CommandError, match="true: no answer within 7 s"):
        node.effects.run(Command(["true"], timeout=7))


def test_mounts_and_modules_change_the_node_and_not_this_machine(node):
    place = node.path("/s")
    node.effects.run(Command(["mount", "-t", "tmpfs", "x", str(place)]))
    assert node.effects.is_mount(place)
    node.effects.run(Command(["umount", str(place)]))
    assert not node.effects.is_mount(place)
    for module in ("vfio-pci", "unknown"):
        node.effects.run(Command(["chroot", str(node.root), "modprobe", module]))
    assert sorted(path.name for path in node.path("/sys/bus/pci/drivers").iterdir()) == ["card", "vfio-pci"]


def test_a_program_of_the_host_is_that_of_the_node(node):
    node.file("/usr/sbin/wipe", '#!/bin/sh\necho "wiped $1"\n').chmod(0o755)
    assert node.access.run_on_host("wipe", "/dev/disk0") == "wiped /dev/disk0\n"
    assert node.access.run_on_host("/usr/sbin/wipe", "/dev/disk1") == "wiped /dev/disk1\n"
    with pytest.raises(CommandError, match="missing now: the node has no program missing"):
        node.access.run_on_host("missing", "now")
    assert node.effects.calls[0] == f"run chroot {node.root} wipe /dev/disk0"


def test_a_daemon_runs_without_mount_namespace_and_cgroup(node, tmp_path):
    command = Command(["unshare", "--mount", "x", "--", "sh", "-c", "echo started"], cgroups=[tmp_path / "no"])
    log = tmp_path / "log"
    node.effects.start(command, log)
    wait(lambda: log.exists() and log.read_text() == "started\n")
    assert node.effects.commands == [command]


def test_an_iommu_group_has_a_node_while_a_function_has_a_vfio_driver(node):
    effects, devices, drivers = node.effects, node.path("/sys/bus/pci/devices"), node.path("/sys/bus/pci/drivers")
    effects.run(Command(["modprobe", "vfio-pci"]))
    for address in (CARD, "0000:10:00.1"):
        effects.write(drivers / "card/unbind", address)
        effects.write(devices / address / "driver_override", "vfio-pci\n")
        effects.write(drivers / "vfio-pci/bind", address)
    assert node.host_device("/dev/vfio/20").minor == 20
    effects.write(drivers / "vfio-pci/unbind", CARD)
    assert node.path("/dev/vfio/20").exists()
    effects.write(drivers / "vfio-pci/unbind", "0000:10:00.1")
    assert not node.path("/dev/vfio/20").exists()


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("card/bind", CARD, "Device or resource busy"),
        ("card/bind", "0000:99:00.0", "No such device"),
        ("vfio-pci/bind", CARD, "No such device"),  # no override allows it
        ("vfio-pci/unbind", CARD, "No such device"),
    ],
)
def test_the_kernel_refuses(node, file, text, why):
    node.effects.run(Command(["modprobe", "vfio-pci"]))
    path = node.path(f"/sys/bus/pci/drivers/{file}")
    with pytest.raises(WriteError, match=f"cannot write '{text}' to {path}: {why}"):
        node.effects.write(path, text)


def test_a_function_without_iommu_group_gets_no_vfio_driver(node):
    node.effects.run(Command(["modprobe", "vfio-pci"]))
    node.remove(f"/sys/bus/pci/devices/{CARD}/iommu_group")
    node.effects.write(node.path("/sys/bus/pci/drivers/card/unbind"), CARD)
    node.effects.write(node.path(f"/sys/bus/pci/devices/{CARD}/driver_override"), "vfio-pci")
    with pytest.raises(WriteError, match="Invalid argument"):
        node.effects.write(node.path("/sys/bus/pci/drivers/vfio-pci/bind"), CARD)


def test_it_works_on_any_directory(tmp_path):
    (tmp_path / "file").touch()
    effects = FakeEffects(tmp_path)
    effects.write(tmp_path / "file", "x")
    assert effects.calls == ["write file"]


def test_a_file_keeps_its_final_newline_whatever_is_written(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    lines, plain = node.file("/sys/lines", "1\n"), node.file("/sys/plain", "1")
    for file in (lines, plain):
        for text in ("2", "3\n"):
            node.effects.write(file, text)
    assert (lines.read_bytes(), plain.read_bytes()) == (b"3\n", b"3")


def test_the_kernels_reaction_to_a_write_is_a_function_of_the_test(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    mode, count = node.file("/sys/devices/a/mode", "off\n"), node.file("/sys/devices/a/count", "0\n")

    def react(path: Path, text: str) -> None:
        if text == "odd":
            raise OSError(22, "Invalid argument")
        path.write_text(f"{text}\n")
        count.write_text("7\n")

    node.effects.on_write("/sys/devices/*/mode", react)
    node.effects.write(mode, "on")
    assert (mode.read_text(), count.read_text()) == ("on\n", "7\n")
    with pytest.raises(WriteError, match=r"cannot write 'odd' to .*/mode: Invalid argument"):
        node.effects.write(mode, "odd")
    node.effects.write(count, "0")
    assert count.read_text() == "0\n"
