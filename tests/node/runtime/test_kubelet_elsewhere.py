"""Each bundled driver on a node whose kubelet has another directory, with no other setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk.loader import find_settings, load_driver
from dra_sdk.loader.finding import iter_drivers
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.testing.sysfs import regular_machine
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.embedded import settings_for

USUAL = Path("/var/lib/kubelet")
DRIVERS = sorted(driver.name for driver in iter_drivers())
RECORDS = {"gpu", "gpu-amd", "memory", "nic"}
"""The drivers that keep records of their own beside the state files."""


def files(directory: Path) -> set[Path]:
    return set(directory.rglob("*"))


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """The root of a host with four cores, and no other hardware."""
    root = tmp_path / "host"
    regular_machine(cores=4).write(root)
    boot_id = root / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("boot-1\n")
    return root


@pytest.mark.parametrize("name", DRIVERS)
def test_a_driver_runs_below_the_directory_of_the_kubelet_and_nowhere_else(
    name: str, host: Path, socket_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRA_PLUGIN_DIRECTORY", str(tmp_path / "plugins"))  # the bridge's own, wherever the kubelet is
    usual, before = files(USUAL), files(host)
    with EmbeddedCluster(directory=socket_dir) as cluster:
        settings = settings_for(cluster, host_root=host)
        driver = load_driver(name, None, settings.kubelet_dir)
        with DriverProcess(driver, settings):
            cluster.kubelet.wait_for_driver(driver.info.name)
            assert (settings.plugin_data(driver.info.name) / "instance.lock").exists()
            assert len(list(settings.plugin_data(driver.info.name).glob("claims*"))) == 1
    assert files(USUAL) == usual
    assert files(host) == before


@pytest.mark.parametrize("name", DRIVERS)
def test_what_a_driver_keeps_itself_follows_the_directory_of_the_kubelet(name: str) -> None:
    settings = find_settings(name)
    values = [] if settings is None else [str(value) for _, value in settings.read({}, None, "/data/kubelet")]
    assert not [value for value in values if value.startswith(str(USUAL))]
    assert any(value.startswith("/data/kubelet/plugins/") for value in values) == (name in RECORDS)
