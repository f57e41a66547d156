"""Prepares at a steady rate for a driver on the real node, as a kubelet calls it.

No machine of tests starts ten pods per second. So claims are allocated by the test, and a second kubelet, the
simulator's, registers the driver's sockets as they come and go, and calls the newest of its pods. The claims, the API
server and the driver are real; the real kubelet is registered beside it.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from dra_sdk.model.claim import ClaimRef
from dra_sdk.tools.simulator.kubelet.plugins import Plugins
from dra_sdk.tools.simulator.kubelet.records import PREPARE, CallRecords, KubeletError
from dra_sdk.tools.simulator.kubelet.registration import Registrar, RegistryWatcher
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.tools.simulator.kubelet.wipes import SliceWiper
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.objects import ObjectStore
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.waiting import TIMEOUT
from tests.cluster.manifests import JSON, claim, request

CLAIMS = 40
"""Claims that take turns: each is prepared, held while others are, and given back."""
HELD, WORKERS = 10, 8
COLLECTION = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


class Load:
    """Prepares `rate` claims per second of a driver that shares one device by its capacity `size`.

    failed: what calls failed, each with its error.
    """

    def __init__(self, cluster: Cluster, driver: str, device_class: str, rate: int) -> None:
        self._cluster, self._driver, self._class, self._rate = cluster, driver, device_class, rate
        self.failed: list[str] = []
        self._records, self._stopping = CallRecords(), threading.Event()
        # The real kubelet decides when the old pod goes. This one must not lose a second over an attempt to register.
        timing = KubeletTiming(dial=TIMEOUT, get_info=TIMEOUT, notify=TIMEOUT)
        # Slices are the real kubelet's to remove: this wiper is never started.
        wiper = SliceWiper(LocalClient(ObjectStore()), cluster.node_name, timing)
        self._plugins = Plugins(timing, self._records, wiper, lambda _: lambda: None)
        registrar = Registrar(self._plugins, self._stopping)
        registry = cluster.kubelet_dir / "plugins_registry" / driver
        self._watcher = RegistryWatcher(registry, registrar)
        self._over = threading.Event()
        self._ticker = threading.Thread(target=self._run, name="load")
        self._begun = self._ended = 0.0
        self._free: deque[ClaimRef] = deque()
        self._held: deque[ClaimRef] = deque()

    def __enter__(self) -> Self:
        self._free.extend(self._allocated())
        self._watcher.start()
        assert self._plugins.wait(lambda infos: any(each.connected for each in infos), TIMEOUT), self._watcher.errors
        self._begun = time.monotonic()
        self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._ticker.join()
        self._stopping.set()
        self._watcher.stop()

    @property
    def calls(self) -> int:
        """How many prepares have ended."""
        return len(self._records.calls(PREPARE))

    @property
    def endpoints(self) -> set[str]:
        """The sockets that were called: one for each pod."""
        return {each.socket for each in self._records.calls(PREPARE)}

    @property
    def rate(self) -> float:
        """Prepares per second from the first to the last."""
        return self.calls / (self._ended - self._begun)

    def report(self) -> str:
        """One line about the calls."""
        took = sorted(each.seconds for each in self._records.calls(PREPARE))
        return (
            f"{len(took)} prepares, {self.rate:.1f} per second, {len(self.failed)} failed; "
            f"median {took[len(took) // 2] * 1000:.0f} ms, longest {took[-1] * 1000:.0f} ms"
        )

    def wait_calls(self, number: int) -> None:
        """Waits until so many prepares have ended."""
        assert self._records.wait(lambda _: self.calls >= number, TIMEOUT), f"{self.calls} of {number} prepares"

    def _run(self) -> None:
        with ThreadPoolExecutor(WORKERS) as pool:
            turn = 0
            while not self._over.wait(max(0.0, self._begun + turn / self._rate - time.monotonic())):
                if self._free:  # else the machine is too busy for this rate
                    pool.submit(self._turn, self._free.popleft())
                turn += 1
        self._ended = time.monotonic()
        for one in self._held:
            self._call("unprepare", one)

    def _turn(self, one: ClaimRef) -> None:
        """Prepares one claim, and gives the one back that is held longest if there are enough."""
        (self._held if self._call("prepare", one) else self._free).append(one)
        if len(self._held) > HELD:
            other = self._held.popleft()
            self._call("unprepare", other)
            self._free.append(other)

    def _call(self, what: str, one: ClaimRef) -> bool:
        try:
            plugin = self._plugins.get(self._driver)
            if what == "prepare":
                plugin.prepare([one])
            else:
                plugin.unprepare([one])
        except KubeletError as error:
            self.failed.append(f"{what} of {one.name} after {time.monotonic() - self._begun:.1f} s: {error}")
            return False
        return True

    def _allocated(self) -> list[ClaimRef]:
        """Creates the claims, and allocates to each a share of the driver's first device with memory to share."""
        path = f"/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%3D{self._driver}"
        (pool, device) = next(
            (piece["spec"]["pool"]["name"], each["name"])
            for piece in self._cluster.api.get(path)["items"]
            for each in piece["spec"]["devices"]
            if each.get("allowMultipleAllocations")
        )
        asked = request("some", self._class, capacity={"requests": {"size": "1Mi"}})
        made = [self._cluster.api.create(COLLECTION, claim(f"load-{number}", [asked])) for number in range(CLAIMS)]
        for each in made:
            each["status"] = {"allocation": self._allocation(pool, device)}
        listed = {"apiVersion": "v1", "kind": "List", "items": made}
        self._cluster.kubectl("replace", "--subresource=status", "-f", "-", input=json.dumps(listed))
        names = [each["metadata"] for each in made]
        return [ClaimRef(namespace=each["namespace"], name=each["name"], uid=each["uid"]) for each in names]

    def _allocation(self, pool: str, device: str) -> JSON:
        result = {"request": "some", "driver": self._driver, "pool": pool, "device": device}
        result |= {"shareID": str(uuid.uuid4()), "consumedCapacity": {"size": "1Mi"}}
        here = {"key": "metadata.name", "operator": "In", "values": [self._cluster.node_name]}
        return {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]}}
