"""The README's driver is a real one: short, strictly typed, and it prepares a claim over the sockets."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dra_sdk.loader import Driver
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.tools.simulator import AllocatedDevice, EmbeddedCluster
from dra_sdk.tools.simulator.oci import HostDevice
from tests.embedded import settings_for
from tests.strict import type_errors

ROOT = Path(__file__).parents[1]
NAME = "serial.example.com"
README = (ROOT / "README.md").read_text()


def port(path: str) -> HostDevice:
    """The device node of a port that this machine does not have."""
    return HostDevice("c", 188, int(path.removeprefix("/dev/ttyUSB")), 0o660)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    path = tmp_path / "serial_driver.py"
    path.write_text(code)
    return path


def test_it_is_at_most_forty_lines(example: Path) -> None:
    assert len(example.read_text().splitlines()) <= 40


def test_it_is_strictly_typed(example: Path) -> None:
    assert type_errors(example) == ""


@pytest.mark.usefixtures("bare_pytest")
@pytest.mark.timeout(600)  # mypy reads all of dra_sdk
@pytest.mark.parametrize("page", ["README.md", "docs/testing.md"])
def test_its_test_is_strictly_typed_and_passes(example: Path, page: str) -> None:
    blocks = re.findall(r"```py(?:thon)?\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    (code,) = (block for block in blocks if "def test_" in block)
    test = example.with_name("test_serial_driver.py")
    test.write_text(code)
    assert type_errors(test, search=(example.parent,)) == ""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=example.parent,
        env={**os.environ, "PYTHONPATH": str(example.parent)},
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_its_commands_show_something_on_any_machine(example: Path) -> None:
    blocks = re.findall(r"^```\w*\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    (block,) = (text for text in blocks if text.startswith("python -c"))
    folder = str(Path(sys.executable).parent)
    command = ["sh", "-ec", block]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=example.parent,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "port-3" in done.stdout
    assert "DEVICE_SPEED=115200" in done.stdout


def test_it_discovers_prepares_and_unprepares(example: Path, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("serial_driver", example)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    host = tmp_path / "host"
    (host / "dev").mkdir(parents=True)
    (host / "dev/ttyUSB3").touch()
    (host / "proc/sys/kernel/random").mkdir(parents=True)
    (host / "proc/sys/kernel/random/boot_id").write_text("boot\n")

    with EmbeddedCluster(host=port) as cluster:
        settings = settings_for(cluster, host_root=host)
        with DriverProcess(Driver.of(module.SerialDriver()), settings):
            cluster.kubelet.wait_for_driver(NAME)
            (published,) = cluster.wait_slices(NAME)
            attributes = {"number": {"int": 3}, "bus": {"string": "usb"}}
            assert published["spec"]["devices"] == [{"name": "port-3", "attributes": attributes}]

            parameters = {"apiVersion": "serial.example.com/v1", "kind": "SerialConfig", "speed": 9600}
            config = {"opaque": {"driver": NAME, "parameters": parameters}}
            cluster.create_class("serial")
            cluster.create_claim("console", {"port": "serial"}, config=[config])
            cluster.allocate("console", [AllocatedDevice("port", NAME, cluster.node_name, "port-3")])
            pod = cluster.run_pod("terminal", ["console"])
            spec = cluster.container_spec(pod)
            assert spec["process"]["env"] == ["PORT_SPEED=9600"]
            assert [(each["path"], each["minor"]) for each in spec["linux"]["devices"]] == [("/dev/serial-port", 3)]
            cluster.stop_pod("terminal")
            assert not list(cluster.cdi_dir.iterdir())
