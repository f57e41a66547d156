"""One driver on one embedded cluster: giving it claims, and seeing that nothing is lost or left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Self

from dra_sdk.loader import Driver
from dra_sdk.node.files import Files
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator import AllocatedDevice, ClaimRef, EmbeddedCluster
from dra_sdk.tools.simulator.kubelet.calls import KubeletCalls
from tests.embedded import settings_for
from tests.faults.lamps import WatchedLamps
from tests.lamps import NAME

REQUEST = "lamp"
Answers = Mapping[str, tuple[str, Sequence[Any]]]


class Site:
    """A cluster, its node's directories, and the claims of a driver that is written down in files.

    What is asked here is what holds for any process of the driver, in this process or in another.
    """

    def __init__(self, cluster: EmbeddedCluster, lamps: Path) -> None:
        self.cluster, self.lamps = cluster, lamps
        self.data = cluster.plugins_dir / NAME
        self.states = self.data / "claims"
        self._numbers = count(1)
        cluster.create_class("lamp")

    # -- claims

    def claim(self, *lamps: str, config: Sequence[Mapping[str, Any]] = (), name: str = "") -> ClaimRef:
        """An allocated claim."""
        name = name or f"claim-{next(self._numbers)}"
        self.cluster.create_claim(name, {REQUEST: "lamp"}, config=config)
        self.cluster.allocate(name, [AllocatedDevice(REQUEST, NAME, self.cluster.node_name, lamp) for lamp in lamps])
        return ClaimRef("default", name, self.cluster.api.get("resourceclaims", name, "default")["metadata"]["uid"])

    def prepare(self, *refs: ClaimRef) -> None:
        """One call of the kubelet; ResponseError if the driver answers with an error."""
        self.cluster.kubelet.prepare(NAME, refs)

    def unprepare(self, *refs: ClaimRef) -> None:
        """The same the other way round."""
        self.cluster.kubelet.unprepare(NAME, refs)

    def calls(self) -> AbstractContextManager[KubeletCalls]:
        """Straight to the service socket, past what the kubelet checks."""
        return closing(KubeletCalls(self.data / "dra.sock", self.cluster.kubelet.timing, NAME))

    # -- what is seen

    def shining(self) -> dict[str, str]:
        """The lamps that are on and the claims they shine for."""
        return {path.name: path.read_text() for path in sorted(self.lamps.iterdir())}

    def files(self) -> list[str]:
        """Everything in the state and CDI directories, temporary files included."""
        return [path.name for folder in (self.states, self.cluster.cdi_dir) for path in sorted(folder.glob("*"))]

    def assert_held(self, *refs: ClaimRef) -> None:
        """Exactly these claims have lamps, a state file and a CDI spec, and no file is nobody's."""
        assert set(self.shining().values()) == {ref.uid for ref in refs}
        assert len(self.files()) == 2 * len(refs), self.files()
        assert all(any(ref.uid in name for ref in refs) for name in self.files()), self.files()

    def assert_sound(self, lamp: str = "lamp-39") -> None:
        """A claim like any other is prepared, reaches its container and goes, and then nothing is left of anything."""
        number = next(self._numbers)
        pod, claim = f"good-pod-{number}", f"good-{number}"
        self.claim(lamp, name=claim)
        spec = self.cluster.container_spec(self.cluster.run_pod(pod, [claim]))
        assert f"LAMP={lamp}" in spec["process"]["env"]
        self.cluster.stop_pod(pod)
        self.assert_held()
        assert not self.cluster.kubelet.records.findings

    def slices(self) -> list[str]:
        """The names of all published devices."""
        found = self.cluster.api.list("resourceslices")
        return [device["name"] for each in found for device in each["spec"].get("devices", [])]


class Inside(Site):
    """A site whose driver runs in this process. `on_step` is called before each step of writing a file."""

    def __init__(self, cluster: EmbeddedCluster, lamps: Path) -> None:
        super().__init__(cluster, lamps)
        self.driver = WatchedLamps(lamps)
        self.on_step: Callable[[str, Path], Any] = _nothing
        self.process: DriverProcess

    @contextmanager
    def running(self, **settings: Any) -> Iterator[DriverProcess]:
        """The driver as a process of its own would run it."""
        settings_of_it = settings_for(self.cluster, **settings)
        process = DriverProcess(Driver.of(self.driver), settings_of_it, files=Files(self._stepped))
        with process:
            self.process = process
            yield process

    def _stepped(self, step: str, path: Path) -> None:
        self.on_step(step, path)

    def wait_registered(self) -> None:
        """Until the kubelet knows it."""
        self.cluster.kubelet.wait_for_driver(NAME, timeout=LONG)

    def end_trouble(self) -> None:
        """Hooks and file operations succeed from now on."""
        self.driver.step, self.on_step = lambda _name: None, _nothing

    def assert_sound(self, lamp: str = "lamp-39") -> None:
        """As in `Site`, with no more trouble made here; and the driver's process holds no claim either."""
        self.end_trouble()
        super().assert_sound(lamp)
        assert self.process.preparer.held() == []


class SharedSite:
    """A running driver that several tests use one after another. After `discard` the next test gets a new one.

    `driver` makes the driver from the directory of its lamps; `directory` makes such a directory.
    """

    def __init__(self, driver: Callable[[Path], WatchedLamps], directory: Callable[[], Path]) -> None:
        self._driver, self._directory = driver, directory
        self._site: Inside | None = None
        self._running = ExitStack()

    def get(self) -> Inside:
        """The site, started and registered."""
        if self._site is None:
            with ExitStack() as stack:
                site = Inside(stack.enter_context(EmbeddedCluster()), self._directory())
                site.driver = self._driver(site.lamps)
                stack.enter_context(site.running())
                site.wait_registered()
                self._running = stack.pop_all()
            self._site = site
        return self._site

    def discard(self) -> None:
        """Stop the driver and its cluster, with all that tests left in them."""
        site, self._site = self._site, None
        if site is not None:
            site.end_trouble()
        self._running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


def _nothing(_step: str, _path: Path) -> None:
    """No trouble."""
