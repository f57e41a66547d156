"""`dra-sdk capture`, and the commands that read what it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dra_sdk import ContainerEdits, Device, DeviceNode, DriverInfo, Node
from dra_sdk.testing import FakeNode
from dra_sdk.testing.sysfs import regular_machine
from dra_sdk.tools.node_archive.archive import HostDevice
from dra_sdk.tools.node_archive.node_files import Captured, capture, write_archive
from tests.cli.cards import Cards, make_cards
from tests.cli.commands import EXAMPLES, Run, runner

CARDS = "tests.cli.cards:Cards"


class NamedCards(Cards):
    """Cards that say which files they read."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("cards.example.com", capture=["/sys/class/card"])


class CardNodes:
    """A driver whose only device has a device node."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("nodes.example.com")

    def dra_discover(self, node: Node) -> list[Device]:
        return [Device("card0")] if (node.root / "dev/card0").exists() else []

    def dra_prepare(self, claim):
        for device in claim.devices:
            yield device.prepared(ContainerEdits(device_nodes=[DeviceNode("/dev/card0")]))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def archived(run: Run, root: Path, archive: Path, *flags: str) -> Path:
    result = run("capture", "-o", archive, "--host-root", root, *flags)
    assert result.status == 0, result.err
    return archive


def test_the_answer_says_what_is_in_the_archive_and_what_is_not(run: Run, tmp_path: Path) -> None:
    regular_machine().write(tmp_path / "node")
    (tmp_path / "node/sys/devices/system/cpu/online").chmod(0o600)
    result = run("capture", "-o", tmp_path / "node.tar.gz", "--host-root", tmp_path / "node")
    assert result.status == 0
    assert " files, 0 device nodes, " in result.out
    assert result.out.endswith("; 0 identifiers replaced\n")
    assert result.err.splitlines() == [
        "left out: 1 path: only root may read it",
        "dra-sdk-node.json in the archive names them",
    ]


def test_a_driver_and_a_flag_add_files(run: Run, tmp_path: Path) -> None:
    root = make_cards(tmp_path / "node")
    without = archived(run, root, tmp_path / "without.tar.gz")
    assert run("discover", CARDS, "--host-root", without).cells == []
    by_driver = archived(run, root, tmp_path / "driver.tar.gz", "--driver", f"{__name__}:NamedCards")
    by_flag = archived(run, root, tmp_path / "flag.tar.gz", "--include", "/sys/class/card/*")
    for archive in (by_driver, by_flag):
        assert len(run("discover", CARDS, "--host-root", archive).cells) == 6
    assert "must be an absolute path" in run("capture", "-o", tmp_path / "x.tar.gz", "--include", "sys/x").err


def test_a_pattern_of_a_driver_is_absolute(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for patterns, said in ((["sys/class/card"], "['sys/class/card']"), ("/sys/class", "'/sys/class'")):
        info = DriverInfo("cards.example.com", capture=patterns)
        monkeypatch.setattr(NamedCards, "dra_driver_info", lambda _self, info=info: info)
        result = run("capture", "-o", tmp_path / "x.tar.gz", "--driver", f"{__name__}:NamedCards")
        assert result.status == 2
        assert f"capture must be a list of absolute patterns such as /sys/class/fpga/*, is {said}" in result.err


def test_every_command_reads_an_archive_as_it_reads_the_directory(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "node"
    regular_machine(sockets=2, cores=2).write(root)
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("00000000-0000-4000-8000-000000000001\n")
    archive = archived(run, root, tmp_path / "node.tar.gz")
    driver, name = "dra_driver_cpu:CpuDriver", ("--node-name", "n")
    for command in (
        ("discover", driver, "-o", "json", *name, "--host-root"),
        ("top", "--here", driver, *name, "--kubelet-dir", tmp_path, "--host-root"),
        ("simulate", EXAMPLES / "hardware-cpu.yaml", "--driver", driver, "--fixture"),
        ("explain", EXAMPLES / "hardware-cpu.yaml", "--driver", driver, "--fixture"),
    ):
        assert run(*command, archive) == run(*command, root), command
    assert "cpudevnuma000" in run("discover", driver, *name, "--host-root", archive).out


@pytest.mark.timeout(300)  # a whole cluster twice, and processes of the driver
def test_a_demo_and_conformance_run_on_an_archive_with_its_device_nodes(run: Run, tmp_path: Path) -> None:
    captured = Captured(
        directories={"/dev"},
        files={"/proc/sys/kernel/random/boot_id": b"boot-1\n"},
        devices={"/dev/card0": HostDevice("c", 240, 7, 0o660)},
    )
    write_archive(captured, tmp_path / "node.tar.gz")
    told = run("demo", f"{__name__}:CardNodes", "--host-root", tmp_path / "node.tar.gz")
    assert (told.status, told.err) == (0, "")
    (edits,) = [
        document
        for document in yaml.safe_load_all(told.out.partition("container gets:")[2].partition("\n7.")[0])
        if document
    ]
    assert [(device["path"], device["major"], device["minor"]) for device in edits["devices"]] == [
        ("/dev/card0", 240, 7)
    ]
    assert "fileMode: 0660\n" in told.out
    flags = ("--host-root", tmp_path / "node.tar.gz", "--level", "PREP-001,PREP-003,CDI-003", "--start-timeout", "120")
    checked = run("conformance", "--driver", f"{__name__}:CardNodes", *flags)
    assert checked.status == 0, checked.out + checked.err


def test_run_refuses_an_archive(run: Run, tmp_path: Path) -> None:
    write_archive(Captured(), tmp_path / "node.tar.gz")
    result = run("run", "cpu", "--host-root", tmp_path / "node.tar.gz")
    assert result.status == 2
    assert "is a file: `run` acts on a node and reads no archive; `demo` reads one" in result.err


def test_what_is_no_archive_is_bad_input(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("text")
    for command in (("discover", "cpu", "--host-root"), ("demo", "cpu", "--host-root")):
        result = run(*command, tmp_path / "notes")
        assert (result.status, result.out) == (2, "")
        assert f"{tmp_path}/notes is not an archive of a node (.tar.gz)" in result.err
    assert run("capture", "-o", tmp_path / "absent/node.tar.gz", "--host-root", tmp_path).err.endswith(
        "absent/node.tar.gz: No such file or directory\n"
    )


def test_a_reached_limit_is_status_1(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    regular_machine().write(tmp_path / "node")
    monkeypatch.setattr("dra_sdk.tools.node_archive.node_files.MAX_MEMBERS", 20)
    result = run("capture", "-o", tmp_path / "node.tar.gz", "--host-root", tmp_path / "node")
    assert result.status == 1
    assert "paths: an archive has at most 20 members" in result.err


def test_a_fixture_of_a_driver_may_be_an_archive(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "cards_package"
    (package / "fixtures").mkdir(parents=True)
    (package / "__init__.py").write_text("from tests.cli.cards import Cards\n")
    monkeypatch.syspath_prepend(tmp_path)
    root = make_cards(tmp_path / "node", 1)
    archived(run, root, package / "fixtures/one-card.tar.gz", "--include", "/sys/class/card")
    result = run("simulate", "--driver", "cards_package:Cards", "--fixture", "one-card", "-o", "json")
    assert result.status == 0
    assert "finds no device" not in result.err
    unknown = run("simulate", "--driver", "cards_package:Cards", "--fixture", "two-cards").err
    assert "neither a directory, an archive nor a fixture; fixtures of driver cards_package:Cards: one-card" in unknown


def test_a_fake_node_is_made_of_an_archive(tmp_path: Path) -> None:
    root = make_cards(tmp_path / "node")
    captured = capture(root, include=["/sys/class/card"])
    captured.devices["/dev/card0"] = HostDevice("b", 240, 7, 0o640)
    write_archive(captured, tmp_path / "node.tar.gz")
    node = FakeNode.from_archive(tmp_path / "node.tar.gz", tmp_path / "fake", "worker-1")
    assert [pool.name for pool in Cards().pools(node.node)] == ["worker-1"]
    device = node.host_device("/dev/card0")
    assert (device.type, device.major, device.minor, device.mode) == ("b", 240, 7, 0o640)
    assert node.path("/proc/sys/kernel/random/boot_id").read_text() == f"{node.boot_id}\n"
    node.remove("/sys/class/card/card0")
    assert len(next(Cards().pools(node.node)).devices) == 3
