"""A state file that is damaged while the driver is away: what runs keeps what it has, and the node says no."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_sdk.cli.main import main
from dra_sdk.loader import Driver, load_driver
from dra_sdk.node.runtime import damaged_state
from dra_sdk.node.runtime.events import EventWriter, NodeEvent
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.testing.sysfs import regular_machine
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.nri import NriRuntime, RefusedError
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.embedded import settings_for
from tests.lamps import NAME, LampDriver
from tests.node.runtime.conftest import ANY_PORT, Web

CPU = "dra.cpu"
Damage = Callable[[Path], object]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def other_header(path: Path) -> None:
    path.write_bytes(b"{]" + path.read_bytes())


def other_checksum(path: Path) -> None:
    """The header is right, so the devices are known, but not their CPUs."""
    path.write_bytes(path.read_bytes()[:-4] + b"   \n")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: list[Damage] = [cut, other_header, other_checksum, empty, directory]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damaged_state, "POLL_SECONDS", 0.05)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    regular_machine(cores=4, threads=1).write(tmp_path / "host")
    boot_id = tmp_path / "host/proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True, exist_ok=True)
    boot_id.write_text("boot-1\n")
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def runtime(cluster: EmbeddedCluster) -> Iterator[NriRuntime]:
    with NriRuntime(settings_for(cluster).nri_socket or Path(), request_timeout=LONG) as runtime:
        yield runtime


def state_file(cluster: EmbeddedCluster, driver: str) -> Path:
    (path,) = (settings_for(cluster).plugin_data(driver)).glob("claims*/[!.]*.json")
    return path


def variables(cluster: EmbeddedCluster) -> list[str]:
    """What CDI gives to the containers of the only claim."""
    (path,) = cluster.cdi_dir.glob("*.json")
    edits = [device["containerEdits"] for device in json.loads(path.read_text())["devices"]]
    return [variable for edit in edits for variable in edit.get("env", ())]


def create(runtime: NriRuntime, name: str, env: list[str] | None = None, uid: str = "") -> Callable[[], str]:
    """Run a container in a pod of its own, or of this UID; returns what tells its CPUs."""
    runtime.run_pod(pb.PodSandbox(id=f"s-{name}", name=name, uid=uid or f"u-{name}", namespace="default"))
    runtime.create_container(pb.Container(id=name, pod_sandbox_id=f"s-{name}", name=name, env=env or ()))
    return lambda: runtime.containers[name].linux.resources.cpu.cpus


def cpu_driver(cluster: EmbeddedCluster, tmp_path: Path) -> DriverProcess:
    return DriverProcess(load_driver("cpu"), settings_for(cluster, host_root=tmp_path / "host"))


def taints(cluster: EmbeddedCluster, driver: str) -> dict[str, list[str]]:
    devices = [device for obj in cluster.wait_slices(driver) for device in obj["spec"]["devices"]]
    return {device["name"]: [taint["key"] for taint in device.get("taints", ())] for device in devices}


def run_pinned(
    cluster: EmbeddedCluster, runtime: NriRuntime, folder: Path
) -> tuple[tuple[list[str], str], Callable[[], str], Callable[[], str]]:
    """Run a container with a CPU of its own and one without.

    Returns the variables and the UID of the pod of the first, and what tells the CPUs of both.
    """
    with cpu_driver(cluster, folder):
        cluster.kubelet.wait_for_driver(CPU)
        cluster.wait_slices(CPU)
        cluster.create_class(CPU)
        cluster.create_claim("one", {"cpu": CPU})
        uid = cluster.create_pod("one-pod", ["one"])["metadata"]["uid"]
        cluster.schedule()
        cluster.run_pod("one-pod")
        env = variables(cluster)
        pinned, others = create(runtime, "pinned", env, uid), create(runtime, "others")
        assert (pinned(), others()) == ("1", "0,2-3")
    return (env, uid), pinned, others


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("has_spec", [True, False], ids=["CDI spec", "no CDI spec"])
def test_running_containers_keep_their_cpus(
    cluster: EmbeddedCluster,
    runtime: NriRuntime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    damage: Damage,
    has_spec: bool,
) -> None:
    monkeypatch.setenv("DRA_CPU_DEVICE_MODE", "individual")
    pod, pinned, others = run_pinned(cluster, runtime, tmp_path)
    damage(state_file(cluster, CPU))
    if not has_spec:
        shutil.rmtree(cluster.cdi_dir)
    with caplog.at_level("INFO"), cpu_driver(cluster, tmp_path):
        assert runtime.wait_plugins(1, LONG)
        wait(lambda: "keeps the resources that it has" in caplog.text)
        late = create(runtime, "late")
        with pytest.raises(RefusedError, match=r"whose state file is damaged: `dra-sdk state dra\.cpu` shows"):
            create(runtime, "restarted", *pod)
        assert (pinned(), others(), late()) == ("1", "0,2-3", "0,2-3")
    assert "created without the driver" not in caplog.text
    assert "shows, repairs or forgets it" in caplog.text


def test_after_a_repair_without_data_the_cpus_are_those_of_the_cdi_spec(
    cluster: EmbeddedCluster, runtime: NriRuntime, tmp_path: Path
) -> None:
    _, pinned, others = run_pinned(cluster, runtime, tmp_path)
    path = state_file(cluster, CPU)
    other_checksum(path)
    dirs = ("--kubelet-dir", str(cluster.registry_dir.parent), "--cdi-dir", str(cluster.cdi_dir))
    assert '"cpus"' in path.read_text()
    repair = ["state", CPU, "repair", path.stem, "--host-root", str(tmp_path / "host"), *dirs]
    assert main(repair) == 0
    assert "cpus" not in path.read_text().partition("\n")[2], "the repaired file has the data of the hook after all"
    with cpu_driver(cluster, tmp_path):
        assert runtime.wait_plugins(1, LONG)
        late = create(runtime, "late")
        assert (pinned(), others(), late()) == ("1", "0,2-3", "0,2-3")


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_node_says_no_until_an_operator_has_decided(
    cluster: EmbeddedCluster,
    web: Web,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    damage: Damage,
) -> None:
    events: list[NodeEvent] = []
    monkeypatch.setattr(EventWriter, "put", lambda _self, event: events.append(event))
    settings = settings_for(cluster, http_address=ANY_PORT)
    with DriverProcess(Driver.of(LampDriver(count=3)), settings):
        cluster.kubelet.wait_for_driver(NAME)
        cluster.wait_slices(NAME)
        cluster.create_class("lamp")
        cluster.create_claim("one", {"lamp": "lamp"})
        cluster.create_pod("one-pod", ["one"])
        cluster.schedule()
        cluster.run_pod("one-pod")
    path = state_file(cluster, NAME)
    damage(path)
    is_known = damage is other_checksum
    key = f"{NAME}/state-file-unreadable"
    with DriverProcess(Driver.of(LampDriver(count=3)), settings) as process:
        wait(lambda: process.publisher.slices.synced)
        wait(lambda: key in taints(cluster, NAME)["lamp-0"])
        assert [name for name, keys in taints(cluster, NAME).items() if key in keys] == (
            ["lamp-0"] if is_known else ["lamp-0", "lamp-1", "lamp-2"]
        )
        status, said = web.read("/readyz", 1)
        assert status == (200 if is_known else 503)
        if not is_known:
            assert said.startswith("no claim gets a device: state file ")
            assert f"`dra-sdk state {NAME}` shows, repairs or forgets it" in said
        assert [(event.reason, f"`dra-sdk state {NAME}` shows" in event.note) for event in events] == [
            ("StateFileUnreadable", True)
        ]
        dirs = ("--kubelet-dir", str(settings.kubelet_dir), "--cdi-dir", str(settings.cdi_dir))
        assert main(["state", NAME, *dirs]) == 1
        assert "forget" in capsys.readouterr().out
        assert main(["state", NAME, "forget", path.stem, "--yes", *dirs]) == 0
        wait(lambda: not any(taints(cluster, NAME).values()))
        wait(lambda: web.read("/readyz", 1)[0] == 200)
