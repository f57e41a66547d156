"""One driver on one node made of files, with the real code between them and no cluster.

    driver = DriverHarness(SerialDriver, node)
    prepared = driver.prepare(claim("port", config=SerialConfig(speed=9600)))
    assert prepared.container().env == {"PORT_SPEED": "9600"}
    driver.unprepare(prepared)

The driver's hooks discover devices; its slices are validated as an API server does it; the scheduler's allocator
chooses devices; the SDK decodes the configuration, keeps state files and writes the CDI spec; a runtime's rules make
the container. Only sockets, HTTP and threads are left out, so a test takes milliseconds. `watching` and
`watching_health` run `dra_watch` and `dra_device_health` in threads, as the driver's process does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final, Protocol, TypeVar

from dra_sdk.errors import InvalidObjectError, NotFoundError
from dra_sdk.loader import Driver
from dra_sdk.loader.contract import settings_class
from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef, Deadline, HeldClaim
from dra_sdk.model.device import Device, ResourcePool
from dra_sdk.model.driver import DriverInfo, Node
from dra_sdk.model.metric import Gauge
from dra_sdk.model.settings import DriverSettings
from dra_sdk.model.status import DeviceHealth
from dra_sdk.node.files import Files
from dra_sdk.node.health.published import KnownDevices
from dra_sdk.node.nri.driver_plugin import DriverPlugin
from dra_sdk.node.nri.plugin import ConnectOptions
from dra_sdk.node.prepare.cdi_specs import spec_path
from dra_sdk.node.prepare.counters import PoolCounters
from dra_sdk.node.prepare.dependencies import Dependencies
from dra_sdk.node.prepare.engine import Preparer
from dra_sdk.testing.claims import FakeClaim
from dra_sdk.testing.cluster import RELEASES, FakeCluster
from dra_sdk.testing.node import FakeNode
from dra_sdk.testing.nri import FakeRuntime, pod_uid
from dra_sdk.testing.prepared import DEFAULT_CONTAINER, PreparedClaim, ref_of
from dra_sdk.testing.watching import Watching, WatchingHealth
from dra_sdk.tools.simulator.cdi import CdiDirectories

KUBELET_SECONDS: Final = 45.0
"""How long the kubelet waits for NodePrepareResources and NodeUnprepareResources."""
_T = TypeVar("_T")


class QuickFiles(Files):
    """The SDK's files without fsync: a killed process loses nothing by that, and tests have no power failures."""

    def write(
        self,
        path: str | Path,
        content: bytes,
        mode: int = 0o600,
        *,
        survive_power_loss: bool = True,
        whole: bool = True,
    ) -> None:
        """See `Files.write`."""
        del survive_power_loss, whole
        super().write(path, content, mode, survive_power_loss=False, whole=False)

    def remove(self, path: str | Path, *, survive_power_loss: bool = True) -> None:
        """See `Files.remove`."""
        del survive_power_loss
        super().remove(path, survive_power_loss=False)


class DriverHarness:
    """A driver on a node.

    `driver` is a driver's class, a function that makes a driver, or an instance; a restart makes a new driver unless
    it is an instance. `settings` are passed to the class or function; without them, a class with `settings_class` gets
    the defaults of its settings and nothing of the environment. `version` and `feature_gates` are those of the cluster.
    Methods raise the errors that the kubelet or the API server would get: DraError and its subclasses. `plugin` is the
    author's object. `kubelet_seconds` is how long a prepare or an unprepare may take, by default the kubelet's 45 s; a
    test of what a hook does with less sets it.
    """

    def __init__(
        self,
        driver: Any,
        node: FakeNode,
        *,
        version: str = "1.36",
        feature_gates: Mapping[str, bool] | None = None,
        settings: DriverSettings | None = None,
    ) -> None:
        self.node = node
        self.restartable = inspect.isclass(driver) or not hasattr(driver, "dra_prepare")
        if not (callable(driver) or hasattr(driver, "dra_prepare")):
            raise TypeError(
                f"driver must be a driver's class, a function that makes one, or an instance, is {driver!r}"
            )
        self.kubelet_seconds = KUBELET_SECONDS
        self.warnings: list[str] = []
        self._hook_node = Node(node.name, node.root, discover_again=self._discover_again, warn=self.warnings.append)
        self._watching: Watching | None = None
        self._seen = KnownDevices()
        self._make = self._maker(driver, settings)
        self._pools: dict[str, PoolCounters] | None = None
        self._runtime: FakeRuntime | None = None
        self._nri_plugin: DriverPlugin | None = None
        self._load()
        self.cluster = FakeCluster(self.info.name, node, version, feature_gates)
        self._begin(QuickFiles())

    # -- starting

    def restart(self, files: Files | None = None) -> None:
        """End the process and start a new one: with a new driver, and only the knowledge that is on disk."""
        self._disconnect()
        self._load()
        self._begin(files or QuickFiles())

    def _load(self) -> None:
        self.plugin = self._make()
        self.driver = Driver.of(self.plugin)
        self._pools = None

    def _begin(self, files: Files) -> None:
        dependencies = Dependencies.of(
            self.driver,
            self.data,
            self.node.cdi_dir,
            files,
            boot_id=self.node.boot_id,
            fetch=self._fetch,
            fetch_pod=self.cluster.read_pod,
            find_device=lambda pool, name: self._counters(pool).devices.get(name),
            find_counters=self._counters,
            announce=lambda ref, statuses: self.cluster.write_device_status(ref, list(statuses)),
        )
        dependencies.store.migrate(self.data, self.node.boot_id)
        self._preparer = Preparer(self.driver, self._hook_node, dependencies)
        self._preparer.recover()
        if self._runtime:
            self._connect(self._runtime)

    def reboot(self) -> None:
        """Reboot the node: new boot ID, no CDI specs, new process."""
        self._disconnect()
        if self._runtime:
            self._runtime.clear()
        self.node.reboot()
        self.restart()

    @property
    def info(self) -> DriverInfo:
        """The driver's description of itself."""
        return self.driver.info

    @property
    def data(self) -> Path:
        """The driver's data directory."""
        return self.node.kubelet_dir / "plugins" / self.driver.info.name

    # -- devices and slices

    def discover(self) -> list[ResourcePool]:
        """Run discovery; call it again after the hardware has changed."""
        pools = self.driver.discover(self._hook_node)
        self._keep(pools)
        return pools

    @property
    def devices(self) -> dict[str, Device]:
        """The discovered devices by name."""
        return {name: device for pool in self._published().values() for name, device in pool.devices.items()}

    def slices(self) -> list[JSON]:
        """Return the ResourceSlices, as the API server of this cluster stores them."""
        return self.cluster.slices(self.discover())

    def assert_publishable(self, *versions: str) -> None:
        """Assert that these releases, by default all since 1.34, accept the slices with its default feature gates.

        1.34 and 1.35 drop counters. So devices that exclude each other are not published there together, and the driver
        must say which of them are: `ResourcePool.without_counters`.
        """
        refused = self.cluster.refused_slices(self.discover(), versions or RELEASES)
        if refused:
            raise AssertionError("\n".join(refused))

    # -- changes and health

    def watching(self) -> Watching:
        """Return `dra_watch` in a thread, and discovery after each change that it reports, for a `with` block.

        At the start of the block discovery has run once. A change after that is not lost, though `dra_watch` may still
        be about to begin: it calls `changed()` once when it has begun, as on a node.
        """
        self._watching = Watching(self.driver, self._hook_node, self._keep)
        return self._watching

    def watching_health(self) -> WatchingHealth:
        """Return `dra_device_health` in a thread, for a `with` block."""
        self._published()
        return WatchingHealth(self.driver, self._hook_node, self._seen)

    def health(self) -> dict[str, DeviceHealth]:
        """Return the first report of `dra_device_health`: the health of each device by its name."""
        with self.watching_health() as running:
            running.wait_reported()
            return running.devices

    def metrics(self) -> list[Gauge]:
        """Return the values of `dra_metrics` now."""
        return self.driver.metrics(self._hook_node, self.held)

    # -- claims

    def add_class(self, name: str, *selectors: str, config: Sequence[JSON] = ()) -> None:
        """Create a DeviceClass. A class with the driver's name, for all its devices, exists already."""
        self.cluster.add_class(name, selectors, config)

    def allocate(self, claim: FakeClaim | JSON) -> JSON:
        """Return the ResourceClaim with the devices that the scheduler chooses; other allocated claims keep theirs.

        InvalidObjectError if the API server would refuse the claim; NotAllocatedError if there are no devices for it.
        """
        requested = claim.encoded(self.info.name, self.info.name) if isinstance(claim, FakeClaim) else claim
        return self.cluster.allocate(requested, self.discover())

    def prepare(
        self,
        claim: FakeClaim | JSON | PreparedClaim,
        *,
        containers: Mapping[str, Sequence[str]] | None = None,
        pod: str = "",
    ) -> PreparedClaim:
        """Allocate the claim unless it is allocated, reserve it for a pod, and prepare it as for the kubelet.

        AssertionError if that takes longer than the kubelet waits, `kubelet_seconds`.

        A claim that is prepared already gets the answer of before, without a call of the hook: a new `claim(…)` is
        another claim. `containers` has for each container of the pod the requests that it uses; by default one
        container uses all. `pod` is the pod's name, by default that of the claim.
        """
        allocated = claim.claim if isinstance(claim, PreparedClaim) else self._reserved(self.allocate(claim), pod)
        ref = ref_of(allocated)
        devices = tuple(self._in_time("dra_prepare", partial(self._preparer.prepare, ref)))
        if self._runtime:
            self._runtime.synchronize_soon()
        cdi = self._cdi_spec(ref)
        self.cluster.check_device_status()
        uses: Mapping[str, Sequence[str] | None] = {DEFAULT_CONTAINER: None} if containers is None else containers
        return PreparedClaim(self.cluster.claims[ref.uid], devices, cdi, uses, self.node)

    def unprepare(self, claim: FakeClaim | JSON | PreparedClaim) -> None:
        """Unprepare the claim, which needs only its name and UID, and free its devices for other claims.

        AssertionError as `prepare`.
        """
        obj = claim.claim if isinstance(claim, PreparedClaim) else claim
        if isinstance(obj, FakeClaim):
            obj = obj.encoded(self.info.name, self.info.name)
        ref = ref_of(obj)
        self._in_time("dra_unprepare", partial(self._preparer.unprepare, ref))
        self.cluster.claims.pop(ref.uid, None)
        if self._runtime:
            self._runtime.synchronize_soon()

    @property
    def held(self) -> list[HeldClaim]:
        """The claims that hold devices, as hooks see them."""
        return self._preparer.held()

    def leftovers(self) -> list[str]:
        """Return the SDK's files on the node: state, CDI specs, metadata; none after every claim is unprepared."""
        folders = (self.data, self.node.cdi_dir)
        return sorted(str(path) for folder in folders for path in folder.rglob("*") if path.is_file())

    def assert_clean(self) -> None:
        """Assert that no claim holds a device, and no file of a claim is left."""
        left = [str(claim) for claim in self.held] + self.leftovers()
        if left:
            raise AssertionError(f"driver {self.info.name} has left: {', '.join(left)}")

    # -- containers

    @contextmanager
    def nri(
        self, version: str = "0.12.1", *, request_timeout: float = 20.0, runtime: FakeRuntime | None = None
    ) -> Iterator[FakeRuntime]:
        """Yield a container runtime with this version of NRI, to which the driver is connected.

        In the block `prepare` and `unprepare` return when containers have what `dra_synchronize` wants then. A hook
        has half of `request_timeout` seconds, as on a node, where runtimes wait 2 s. `runtime` is that of another
        driver on the node, in its block.
        """
        if not self.driver.is_nri_plugin:
            raise TypeError(f"driver {self.info.name} has no hook about pods and containers, nor DriverInfo(nri=True)")
        with (
            TemporaryDirectory(prefix="dra-nri-") as directory,  # the path of a socket must be short
            nullcontext(runtime) if runtime else _runtime(self.node, Path(directory), version, request_timeout) as own,
        ):
            try:
                self._runtime = own
                self._connect(own)
                yield own
            finally:
                self._disconnect()
                self._runtime = None

    # -- inside

    def _in_time(self, hook: str, call: Callable[[Deadline], _T]) -> _T:
        """Return what a call returns that has as long as the kubelet gives it."""
        start, limit = monotonic(), self.kubelet_seconds
        deadline = Deadline(lambda: start + limit - monotonic())
        returned = call(deadline)
        if deadline.is_over:
            raise AssertionError(
                f"{hook} of driver {self.info.name} took {monotonic() - start:.1f} s: the kubelet gives up after "
                f"{limit:g} s and calls again; claim.deadline.remaining() says how long is left"
            )
        return returned

    def _connect(self, runtime: FakeRuntime) -> None:
        options, preparer = ConnectOptions(path=runtime.simulated.path), self._preparer
        hooks = partial(DriverPlugin, report=preparer.report, admit=preparer.admit)
        self._nri_plugin = hooks(self.driver, self._hook_node, preparer.held, options)
        runtime.connect(self._nri_plugin)

    def _disconnect(self) -> None:
        if self._runtime and self._nri_plugin:
            self._runtime.disconnect(self._nri_plugin)
        self._nri_plugin = None

    def _reserved(self, claim: JSON, pod: str) -> JSON:
        """Return the claim, reserved for a pod."""
        metadata, status = claim["metadata"], claim["status"]
        name = pod or metadata["name"]
        consumer = {"resource": "pods", "name": name, "uid": pod_uid(metadata["namespace"], name)}
        reserved = status.get("reservedFor") or []
        if consumer in reserved or (reserved and not pod):
            return claim
        return self.cluster.adopt({**claim, "status": {**status, "reservedFor": [*reserved, consumer]}})

    def _maker(self, driver: Any, settings: DriverSettings | None) -> Callable[[], object]:
        kind = settings_class(driver, f"driver {driver.__qualname__}") if inspect.isclass(driver) else None
        if settings is None and kind is not None:
            settings = kind()
        if settings is not None and not self.restartable:
            raise TypeError(f"settings are for a driver's class or a function that makes one, not for {driver!r}")
        if settings is not None:
            return partial(driver, settings=settings)
        made: Callable[[], object] = driver if self.restartable else lambda: driver
        return made

    def _keep(self, pools: Sequence[ResourcePool]) -> None:
        self._seen.add(pools)
        self._pools = {pool.name: PoolCounters.of(pool) for pool in pools}

    def _discover_again(self) -> None:
        """Forget the devices, so that they are discovered again when they are needed; while watched, at once."""
        if self._watching and self._watching.is_running:
            self._watching.discover_again()
        else:
            self._pools = None

    def _published(self) -> dict[str, PoolCounters]:
        if self._pools is None:
            self.discover()
        return self._pools or {}

    def _counters(self, pool: str) -> PoolCounters:
        return self._published().get(pool) or PoolCounters()

    def _fetch(self, ref: ClaimRef, _deadline: Deadline) -> JSON:
        claim = self.cluster.claims.get(ref.uid)
        if claim is None:
            raise NotFoundError(f"resourceclaims {ref.namespace}/{ref.name} not found", status=404)
        return claim

    def _cdi_spec(self, ref: ClaimRef) -> JSON | None:
        path = spec_path(self.node.cdi_dir, self.info.name, ref.uid)
        specs = [spec for spec in CdiDirectories([self.node.cdi_dir]).load().specs if spec.path == path]
        if path.exists() and not specs:
            raise InvalidObjectError(f"CDI spec {path.name}", ["no container runtime would load it"])
        return specs[0].content if specs else None


@contextmanager
def _runtime(node: FakeNode, directory: Path, version: str, request_timeout: float) -> Iterator[FakeRuntime]:
    runtime = FakeRuntime(node, directory / "nri.sock", version, request_timeout)
    with runtime.simulated:
        yield runtime


class DriverFactory(Protocol):
    """The type of the fixture `dra_driver`: a `DriverHarness` for a driver, on the node of the fixture `dra_node`."""

    def __call__(
        self, driver: Any, *, version: str = "1.36", feature_gates: Mapping[str, bool] | None = None
    ) -> DriverHarness:
        """Run a driver on the node."""
