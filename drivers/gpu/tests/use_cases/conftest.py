"""A use case from its manifest to its containers: simulated on what the driver publishes, then prepared by it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from dra_driver_gpu.settings import GpuSettings
from dra_driver_gpu.testing.examples import NODES, ExampleNode
from dra_driver_gpu.testing.harness import GpuHarness
from dra_driver_gpu.testing.nvml import MemoryNvml, read_fixture

from dra_sdk.cli.main import main
from dra_sdk.testing import PreparedClaim

ROOT = Path(__file__).parents[4]
EXAMPLES = ROOT / "docs/examples"
JSON = dict[str, Any]
Simulate = Callable[..., list[JSON]]


def manifest(case: str) -> Path:
    return EXAMPLES / "gpu-use-cases" / f"{case}.yaml"


def node_of(case: str) -> ExampleNode:
    """The node that the example's own command line names."""
    (line,) = [text for text in manifest(case).read_text().splitlines() if text.startswith("# dra-sdk simulate ")]
    (file,) = [Path(word).stem for word in line.split() if "/nodes/" in word]
    return NODES[file]


@pytest.fixture
def case_node() -> Callable[[str], ExampleNode]:
    """The node of a use case."""
    return node_of


@pytest.fixture
def simulate(capsys: pytest.CaptureFixture[str]) -> Simulate:
    """`dra-sdk simulate` with these arguments; the claims that come out."""

    def run(*arguments: object) -> list[JSON]:
        status = main(["simulate", str(EXAMPLES / "classes.yaml"), *map(str, arguments), "-o", "json"])
        out, err = capsys.readouterr()
        assert status in {0, 1}, err
        claims: list[JSON] = [item for item in json.loads(out)["items"] if item["kind"] == "ResourceClaim"]
        return claims

    return run


class Played:
    """All claims of a use case, allocated by the simulator and prepared by the driver."""

    def __init__(self, case: str, directory: Path, simulate: Simulate) -> None:
        node = node_of(case)
        settings = GpuSettings.read(node.settings)
        self._read: MemoryNvml | None = None
        self.harness = GpuHarness(
            directory,
            node.fakes(),
            nvml=lambda _root: self._gpus(),
            dynamic_mig=settings.dynamic_mig,
            passthrough=settings.passthrough,
            sharing=settings.sharing,
            vfio_seconds=0.2,
        )
        node.complete(self.harness.node.root)
        self.harness.gpus.set_all_instances()
        self.harness.register_nodes()
        self.harness.driver.discover()
        self.before = self.state()
        (directory / "node.json").write_text(
            json.dumps({"kind": "List", "apiVersion": "v1", "items": self._objects(node)})
        )
        self.claims = simulate(directory / "node.json", manifest(case))
        self.pods = {
            manifested["metadata"]["name"]: manifested
            for manifested in yaml.safe_load_all(manifest(case).read_text())
            if manifested["kind"] == "Pod"
        }
        self.prepared: dict[str, PreparedClaim] = {}  # by pod
        self.live: list[PreparedClaim] = []
        for claim in self.claims:
            if "allocation" in claim.get("status", {}):
                self._prepare(claim)

    def _gpus(self) -> MemoryNvml:
        if self._read is None:
            self._read = read_fixture(self.harness.node.root / "nvml.yaml")
        return self._read

    @property
    def memory(self) -> MemoryNvml:
        """The GPUs."""
        assert self._read is not None
        return self._read

    def _objects(self, node: ExampleNode) -> list[JSON]:
        """The node under the name that the harness has."""
        objects = json.loads(json.dumps(node.other_objects()).replace(f'"{node.name}"', f'"{self.harness.node.name}"'))
        return [*objects, *self.harness.driver.slices()]

    def _prepare(self, claim: JSON) -> None:
        raw = self.harness.driver.cluster.adopt(claim)
        containers: dict[str, Any] = {}
        users = [consumer["name"] for consumer in claim["status"]["reservedFor"]]
        for user in users:
            containers |= _containers(self.pods[user], claim)
        prepared = self.harness.driver.prepare(raw, containers=containers)
        self.live.append(prepared)
        self.prepared |= dict.fromkeys(users, prepared)
        self.harness.register_nodes()  # those of VFIO are made when a GPU is bound to it

    def container(self, name: str) -> Any:
        """What container `pod/container` gets."""
        return self.prepared[name.partition("/")[0]].container(name)

    def gpus(self, name: str) -> set[str]:
        """The device nodes of whole GPUs in a container."""
        return {path for path in self.container(name).devices if path.removeprefix("/dev/nvidia").isdecimal()}

    def state(self) -> Any:
        """What must be as before once all claims are unprepared."""
        states = [self.memory.state(gpu.uuid) for gpu in self.memory.gpus]
        gpus = [(state.mig.current, state.compute_mode, sorted(state.instances)) for state in states]
        drivers = {
            gpu.pci_address: (self.harness.node.root / "sys/bus/pci/devices" / gpu.pci_address / "driver")
            .readlink()
            .name
            for gpu in self.memory.gpus
        }
        return gpus, drivers

    def end(self) -> None:
        """Unprepare everything: the node is as before."""
        while self.live:
            self.harness.driver.unprepare(self.live.pop())
        self.harness.driver.assert_clean()
        assert self.harness.effects.running_daemons() == []
        assert self.state() == self.before


def _containers(pod: Mapping[str, Any], claim: JSON) -> dict[str, Sequence[str] | None]:
    """Which requests of a claim each container of a pod asks for; None for all of them."""
    annotated = claim["metadata"].get("annotations", {}).get("resource.kubernetes.io/pod-claim-name")
    entries = {
        entry["name"]
        for entry in pod["spec"].get("resourceClaims", ())
        if entry["name"] == annotated or entry.get("resourceClaimName") == claim["metadata"]["name"]
    }
    by_container: dict[str, Sequence[str] | None] = {}
    for container in pod["spec"]["containers"]:
        wanted = [
            used for used in container.get("resources", {}).get("claims", ()) if not entries or used["name"] in entries
        ]
        requests = [used["request"] for used in wanted if "request" in used]
        by_container[f"{pod['metadata']['name']}/{container['name']}"] = requests or None
    return by_container


@pytest.fixture
def play(tmp_path: Path, simulate: Simulate) -> Iterator[Callable[[str], Played]]:
    """Plays a use case; afterwards the node must be as before."""
    made: list[Played] = []

    def run(case: str) -> Played:
        made.append(Played(case, tmp_path, simulate))
        return made[-1]

    yield run
    for played in made:
        played.end()
