"""Pods come and go on the node, some at a time, with faults among them; after each batch the drivers are sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from random import Random
from statistics import median
from threading import Lock
from time import monotonic
from typing import Final, TypeVar

from dra_sdk.tools.simulator import RunningPod
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.bench.stats import quantile
from tests.endurance.faults import Fault, plan
from tests.endurance.node import DriverUnderTest, EnduranceNode, repeated
from tests.endurance.samples import Sample, complaints, usage

T = TypeVar("T")
WORKERS: Final = 4
RESIDENTS: Final = 2
"""Pods with all three drivers that run from the beginning to the end."""
IN_RUNTIME: Final = 0.25
"""The share of pods whose container the runtime creates; for the others the kubelet's two calls are all."""
Due = tuple[int, str, Fault]
"""Before which pod a fault comes, its name, and it."""
_SHARES: Final = ((1, 0.8), (2, 0.15), (3, 0.05))
"""How many drivers a pod uses, and the share of such pods."""


@dataclass
class Result:
    """What came out.

    pods: how many pods came and went.
    seconds: how long that took.
    samples: of each driver, by its name.
    faults: how often each fault happened.
    repeated: steps of pods that failed first and were repeated, by the kind of error.
    complaints: what is not as it must be.
    """

    pods: int
    seconds: float = 0.0
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)


class Endurance:
    """One run. `seed` decides faults and pods; `batches` is how often is sampled; `tell` gets lines of progress.

    After `limit` seconds no further batch begins.
    """

    def __init__(
        self,
        node: EnduranceNode,
        pods: int,
        *,
        batches: int,
        seed: int,
        limit: float = inf,
        tell: Callable[[str], None] = print,
    ) -> None:
        self._node, self._batches, self._limit, self._tell = node, batches, limit, tell
        self._random = Random(seed)
        self._faults = plan(pods, node.drivers, self._random)
        self._processor: dict[tuple[str, int], float] = {}
        self._lock = Lock()
        self.result = Result(pods)

    def run(self) -> Result:
        """Run to the end; an exception of a pod ends the run."""
        began = monotonic()
        self._start_residents()
        self._sample(0, began)
        done = 0
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="pods") as workers:
            for batch in range(1, self._batches + 1):
                until = self.result.pods * batch // self._batches
                since = monotonic()
                shares = [range(done + worker, until, WORKERS) for worker in range(WORKERS)]
                due = [fault for fault in self._faults if done <= fault[0] < until]
                seeds = [self._random.random() for _ in shares]
                futures = [
                    workers.submit(self._work, worker, share, due[worker::WORKERS], Random(seed))
                    for worker, (share, seed) in enumerate(zip(shares, seeds, strict=True))
                ]
                for future in futures:
                    future.result()
                done = until
                self._sample(done, since)
                self._tell(self._progress(done, monotonic() - began))
                if monotonic() - began > self._limit:
                    break
        self.result.pods = done
        self._check_residents()
        self.result.seconds = monotonic() - began
        for driver, samples in self.result.samples.items():
            self.result.complaints.extend(complaints(driver, samples, claims=RESIDENTS))
        return self.result

    # -- pods

    def _work(self, worker: int, pods: range, faults: Sequence[Due], random: Random) -> None:
        waiting = list(faults)
        for number in pods:
            while waiting and waiting[0][0] <= number:
                self._fault(*waiting.pop(0)[1:], random)
            drivers = self._draw(random)
            self._pod(f"pod-{number}", drivers, RESIDENTS + worker, in_runtime=random.random() < IN_RUNTIME)
        for fault in waiting:
            self._fault(*fault[1:], random)

    def _draw(self, random: Random) -> list[str]:
        counts, weights = zip(*_SHARES, strict=True)
        (count,) = random.choices(counts, weights)
        return [each.driver for each in random.sample(self._node.drivers, count)]

    def _pod(self, name: str, drivers: Sequence[str], slot: int, *, in_runtime: bool) -> None:
        node = self._node
        pod = self._prepare(name, drivers, slot)
        if in_runtime:
            self._run_container(pod)
            with node.containers:
                node.runtime.stop_container(name)
                node.runtime.remove_container(name)
                node.runtime.stop_pod(name)
                node.runtime.remove_pod(name)
        self._repeat(lambda: node.cluster.kubelet.stop_pod(pod.uid))
        for plural in ("pods", "resourceclaims"):
            node.cluster.api.delete(plural, name, "default")

    def _prepare(self, name: str, drivers: Sequence[str], slot: int) -> RunningPod:
        made = self._node.create_pod(name, drivers, slot)
        return self._repeat(lambda: self._node.cluster.kubelet.run_pod(made))

    def _run_container(self, pod: RunningPod) -> None:
        """As a container runtime does: with what the CDI specs of the claim contain."""
        node, name = self._node, pod.name
        spec = node.cluster.container_spec(pod)
        container = pb.Container(id=name, pod_sandbox_id=name, name="main")
        container.env.extend(spec.get("process", {}).get("env", []))
        with node.containers:
            node.runtime.run_pod(pb.PodSandbox(id=name, name=name, uid=pod.uid, namespace="default"))
            self._repeat(lambda: node.runtime.create_container(container))
            node.runtime.start_container(name)

    def _repeat(self, step: Callable[[], T]) -> T:
        return repeated(step, self._note)

    def _note(self, error: Exception) -> None:
        with self._lock:
            self.result.repeated[type(error).__name__] += 1

    # -- residents

    def _start_residents(self) -> None:
        drivers = [each.driver for each in self._node.drivers]
        for number in range(RESIDENTS):
            pod = self._prepare(f"resident-{number}", drivers, number)
            self._run_container(pod)
            self._node.residents.append(pod)

    def _check_residents(self) -> None:
        """The residents' devices are as they were, after all restarts."""
        for driver in self._node.drivers:
            self._node.sync_residents(driver.driver)
        for pod in self._node.residents:
            self._node.cluster.container_spec(pod)  # raises if a CDI device is gone

    # -- faults

    def _fault(self, name: str, fault: Fault, random: Random) -> None:
        with self._lock:
            self.result.faults[name] += 1
        fault(self._node, random)

    # -- samples

    def _sample(self, pods: int, since: float) -> None:
        self._node.runtime.calls.clear()
        for driver in self._node.drivers:
            self.result.samples.setdefault(driver.driver, []).append(self._measured(driver, pods, since))

    def _measured(self, driver: DriverUnderTest, pods: int, since: float) -> Sample:
        node, used = self._node, usage(driver.pid)
        before = self._processor.get((driver.driver, driver.life))
        self._processor[driver.driver, driver.life] = used.processor
        kubelet = node.cluster.kubelet
        calls = [
            each for each in kubelet.records.calls("prepare", driver.driver) if each.started >= since and not each.error
        ]
        seconds = [each.seconds for each in calls] or [0.0]
        return Sample(
            pods=pods,
            life=driver.life,
            memory=used.memory,
            descriptors=used.descriptors,
            threads=used.threads,
            files=node.state_files(driver.driver),
            specs=node.specs(driver.driver),
            claims=len(calls),
            processor=None if before is None else used.processor - before,
            p50=median(seconds),
            p99=quantile(seconds, 0.99),
        )

    def _progress(self, pods: int, seconds: float) -> str:
        parts = [f"{name} {found[-1].memory:.1f} MiB" for name, found in self.result.samples.items()]
        return f"{pods} of {self.result.pods} pods in {seconds:.0f} s: {', '.join(parts)}"
