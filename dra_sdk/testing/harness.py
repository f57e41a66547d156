"""One driver on one node made of files, with everything real in between and no cluster.

    driver = DriverHarness(SerialDriver, node)
    prepared = driver.prepare(claim("port", config=SerialConfig(speed=9600)))
    assert prepared.container().env == {"SERIAL_SPEED": "9600"}
    driver.unprepare(prepared)

The driver's hooks discover; its slices are checked as an API server does; the scheduler's match chooses devices; the
SDK's engine decodes configuration, keeps state files and writes the CDI spec; a runtime's rules make the container.
Only sockets, HTTP and threads are left out, so a test takes milliseconds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dra_sdk.errors import InvalidObjectError, NotFoundError
from dra_sdk.loader import Driver
from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef, Deadline, HeldClaim, HeldDevice
from dra_sdk.model.device import Device, ResourcePool
from dra_sdk.model.driver import DriverInfo
from dra_sdk.node.files import Files
from dra_sdk.node.metadata.directory import MetadataDirectory
from dra_sdk.node.prepare.cdi_specs import CdiSpecs
from dra_sdk.node.prepare.checkpoint_store import CheckpointStore
from dra_sdk.node.prepare.engine import Effects, Preparer
from dra_sdk.testing.claims import FakeClaim
from dra_sdk.testing.container import ContainerView, source_of
from dra_sdk.testing.files import QuickFiles
from dra_sdk.testing.match import Match, NotAllocatedError
from dra_sdk.testing.node import FakeNode
from dra_sdk.testing.publishing import RELEASES, fresh_slices, refusals
from dra_sdk.tools.simulator.cdi import CdiDirectories
from dra_sdk.wire.profile import ServerProfile

__all__ = ["MAIN", "DriverHarness", "NotAllocatedError", "PreparedClaim"]

MAIN = "main"


@dataclass(frozen=True)
class PreparedClaim:
    """What became of a claim: the ResourceClaim, the driver's answer to the kubelet, and its CDI spec, None for none.

    `containers` says which requests each container of the pod asks for; None stands for the whole claim.
    """

    claim: JSON = field(repr=False)
    devices: tuple[HeldDevice, ...]
    cdi: JSON | None = field(repr=False)
    containers: Mapping[str, Sequence[str] | None] = field(repr=False)
    node: FakeNode = field(repr=False)

    @property
    def names(self) -> list[str]:
        """The names of the devices, in the order of the claim's allocation."""
        return [each.name for each in self.devices]

    @property
    def ref(self) -> ClaimRef:
        """The claim as the kubelet names it."""
        metadata = self.claim["metadata"]
        return ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"])

    def container(self, name: str = MAIN) -> ContainerView:
        """What a container gets. AssertionError where a mount's source is not on the node; a runtime would fail too."""
        if name not in self.containers:
            raise AssertionError(f"the pod has no container {name!r}; there are {', '.join(self.containers)}")
        requests = self.containers[name]
        wanted = [each for each in self.devices if requests is None or each.base_request in requests]
        ids = tuple(dict.fromkeys(cdi_id for each in wanted for cdi_id in each.cdi_ids))
        oci = CdiDirectories([self.node.cdi_dir], self.node.host_device).inject({"ociVersion": "1.2.1"}, ids)
        view = ContainerView(name, ids, oci, self.node.root)
        missing = [each["source"] for each in view.mounts.values() if not source_of(each, self.node.root).exists()]
        if missing:
            raise AssertionError(f"container {name} mounts what the node does not have: {', '.join(missing)}")
        return view


class DriverHarness:
    """`driver` is a driver's class, or a function that makes one, so that a restart gives a fresh one; or an instance.

    `version` and `feature_gates` say which cluster this is: what its API server drops, how its scheduler matches.
    Errors are those that the kubelet or the server would get: `DraError` and what is below it. `plugin` is the author's
    own object.
    """

    def __init__(
        self,
        driver: Any,
        node: FakeNode,
        *,
        version: str = "1.36",
        feature_gates: Mapping[str, bool] | None = None,
    ) -> None:
        self.node = node
        self.restartable = inspect.isclass(driver) or not hasattr(driver, "dra_prepare")
        if not (callable(driver) or hasattr(driver, "dra_prepare")):
            raise TypeError(
                f"driver must be a driver's class, a function that makes one, or an instance, is {driver!r}"
            )
        self._make: Callable[[], object] = driver if self.restartable else lambda: driver
        self._devices: dict[tuple[str, str], Device] | None = None
        self.start()
        self.match = Match(self.info.name, node, version, feature_gates)

    # -- life

    def start(self, files: Files | None = None) -> None:
        """Begins as a new process does: a fresh driver, and nothing known but what is on disk."""
        files = files or QuickFiles()
        self.plugin = self._make()
        self.driver = Driver.of(self.plugin)
        self._devices = None
        undoable = self.driver.implements("dra_unprepare")
        store = CheckpointStore.of(self.data, self.node.boot_id, files, undoable=undoable, shared=False)
        store.migrate(self.data, self.node.boot_id)
        effects = Effects(
            store=store,
            cdi=CdiSpecs(self.node.cdi_dir, self.info.cdi_kind, self.info.name, files),
            fetch=self._fetch,
            published=lambda pool, name: self._published().get((pool, name)),
            boot_id=self.node.boot_id,
            metadata=MetadataDirectory(self.info.name, self.data, files) if self.info.metadata else None,
            announce=lambda ref, statuses: self.match.announce(ref, list(statuses)),
        )
        self._preparer = Preparer(self.driver, self.node.node, effects)
        self._preparer.recover()

    def restart(self) -> None:
        """The process ends and starts again."""
        self.start()

    def reboot(self) -> None:
        """The node is rebooted: another boot id, no CDI specs, a new process."""
        self.node.reboot()
        self.start()

    @property
    def info(self) -> DriverInfo:
        """What the driver says about itself."""
        return self.driver.info

    @property
    def data(self) -> Path:
        """The driver's data directory."""
        return self.node.kubelet_dir / "plugins" / self.driver.info.name

    # -- describe

    def discover(self) -> list[ResourcePool]:
        """Runs discovery now; call it again when the hardware has changed."""
        pools = self.driver.discover(self.node.node)
        self._devices = {(pool.name, device.name): device for pool in pools for device in pool.devices}
        return pools

    @property
    def devices(self) -> dict[str, Device]:
        """What was discovered, by name."""
        return {name: device for (_, name), device in self._published().items()}

    def slices(self) -> list[JSON]:
        """The ResourceSlices, as the API server of this cluster stores them."""
        return self.match.slices(self.discover())

    def assert_publishable(self, *versions: str) -> None:
        """Every one of these releases, by default all from 1.34, takes the slices with its default feature gates."""
        pools, refused = self.discover(), list[str]()
        for version in versions or RELEASES:
            refused += refusals(fresh_slices(pools, self.info.name, self.node.name, ServerProfile.of(version)), version)
        if refused:
            raise AssertionError("\n".join(refused))

    # -- request and match

    def add_class(self, name: str, *selectors: str, config: Sequence[JSON] = ()) -> None:
        """A DeviceClass. One with the driver's name, for all its devices, is there already."""
        self.match.add_class(name, selectors, config)

    def allocate(self, claim: FakeClaim | JSON) -> JSON:
        """The ResourceClaim, with the devices that the scheduler gives it next to what is allocated already.

        InvalidObjectError where the API server would refuse the claim, NotAllocatedError with the reason where it
        cannot have its devices.
        """
        found = claim.encoded(self.info.name, self.info.name) if isinstance(claim, FakeClaim) else claim
        return self.match.allocate(found, self.discover())

    # -- actuate

    def prepare(
        self, claim: FakeClaim | JSON | PreparedClaim, *, containers: Mapping[str, Sequence[str]] | None = None
    ) -> PreparedClaim:
        """Allocates the claim if need be, and prepares it as the kubelet would have it done."""
        found = claim.claim if isinstance(claim, PreparedClaim) else self.allocate(claim)
        metadata = found["metadata"]
        ref = ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"])
        devices = tuple(self._preparer.prepare(ref))
        stored = self._cdi_spec(ref)
        self.match.check_statuses()
        wanted: Mapping[str, Sequence[str] | None] = containers if containers is not None else {MAIN: None}
        return PreparedClaim(self.match.claims[ref.uid], devices, stored, wanted, self.node)

    def unprepare(self, claim: FakeClaim | JSON | PreparedClaim) -> None:
        """Unprepares, which needs nothing but the name of the claim; then its devices are free for others."""
        found = claim.claim if isinstance(claim, PreparedClaim) else claim
        if isinstance(found, FakeClaim):
            found = found.encoded(self.info.name, self.info.name)
        metadata = found["metadata"]
        self._preparer.unprepare(ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"]))
        self.match.claims.pop(metadata["uid"], None)

    @property
    def held(self) -> list[HeldClaim]:
        """The claims that hold devices, as hooks see them."""
        return self._preparer.held()

    def leftovers(self) -> list[str]:
        """Files of the SDK that are on the node: state, CDI specs, metadata. None once every claim is unprepared."""
        places = (self.data, self.node.cdi_dir)
        return sorted(str(path) for place in places for path in place.rglob("*") if path.is_file())

    def assert_clean(self) -> None:
        """No claim holds a device, and no file is left of any."""
        left = [str(claim) for claim in self.held] + self.leftovers()
        if left:
            raise AssertionError(f"driver {self.info.name} has left: {', '.join(left)}")

    # -- inside

    def _published(self) -> dict[tuple[str, str], Device]:
        if self._devices is None:
            self.discover()
        return self._devices or {}

    def _fetch(self, ref: ClaimRef, _deadline: Deadline) -> JSON:
        found = self.match.claims.get(ref.uid)
        if found is None:
            raise NotFoundError(f"resourceclaims {ref.namespace}/{ref.name} not found", status=404)
        return found

    def _cdi_spec(self, ref: ClaimRef) -> JSON | None:
        path = CdiSpecs(self.node.cdi_dir, self.info.cdi_kind, self.info.name).path(ref.uid)
        found = [each for each in CdiDirectories([self.node.cdi_dir]).load().specs if each.path == path]
        if path.exists() and not found:
            raise InvalidObjectError(f"CDI spec {path.name}", ["no container runtime would load it"])
        return found[0].content if found else None
