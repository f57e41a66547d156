"""What a driver process measures of itself, for Prometheus."""

from __future__ import annotations

import logging
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from dra_sdk.errors import DraError
from dra_sdk.model import metric
from dra_sdk.model.device import Device
from dra_sdk.model.status import DeviceHealth, HealthStatus
from dra_sdk.model.undo import UndoStep, Verdict
from dra_sdk.node.kubelet.registration import Registration
from dra_sdk.node.prepare.engine import Preparer
from dra_sdk.node.slices.controller import SliceController

log = logging.getLogger(__name__)
_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 45)  # seconds; the kubelet waits 45
_NRI_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)  # seconds; runtimes wait 2


class Timed:
    """Measures the duration of a `with`, and whether it raised.

    times: returns the histogram for a name and a result.
    name: the name.
    """

    __slots__ = ("_begun", "_name", "_times")

    def __init__(self, times: Callable[[str, str], Histogram], name: str) -> None:
        self._times, self._name = times, name

    def __enter__(self) -> None:
        self._begun = perf_counter()

    def __exit__(self, error: object, *_: object) -> None:
        self._times(self._name, "ok" if error is None else "error").observe(perf_counter() - self._begun)


class DriverGauges(Collector):
    """The values of the driver's own that are read at each scrape. Without them the rest of the page is served.

    driver: the driver's name, a label of each value.
    read: returns the values; a DraError is logged.
    """

    def __init__(self, driver: str, read: Callable[[], Sequence[metric.Gauge]]) -> None:
        self._driver, self._read = driver, read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield each metric with its values."""
        families: dict[str, GaugeMetricFamily] = {}
        try:
            values = self._read()
        except DraError as error:
            log.warning("/metrics lacks what the driver measures: %s", error)
            return
        for gauge in values:
            names = sorted(gauge.labels)
            if gauge.name not in families:
                families[gauge.name] = GaugeMetricFamily(gauge.name, gauge.help, labels=["driver", *names])
            families[gauge.name].add_metric([self._driver, *(gauge.labels[name] for name in names)], gauge.value)
        yield from families.values()


class _ReadCounter(Collector):
    """A number that only grows, which is read at each scrape."""

    def __init__(self, driver: str, name: str, text: str, read: Callable[[], float]) -> None:
        self._driver, self._name, self._text, self._read = driver, name, text, read

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the number."""
        family = CounterMetricFamily(self._name, self._text, labels=["driver"])
        family.add_metric([self._driver], self._read())
        yield family


class _Devices(Collector):
    """The published devices by pool and health, and those that have taints by key and effect.

    driver: the driver's name, a label of each value.
    devices: returns the published devices with their pools.
    health: returns the latest report of each device.
    """

    def __init__(
        self,
        driver: str,
        devices: Callable[[], Iterable[tuple[str, Device]]],
        health: Callable[[], Sequence[DeviceHealth]],
    ) -> None:
        self._driver, self._devices, self._health = driver, devices, health

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield both counts; a pool without devices in a state has a 0 for it."""
        states = {(health.pool, health.device): health.status for health in self._health()}
        counts: Tally[tuple[str, HealthStatus]] = Tally()
        taints: Tally[tuple[str, str, str]] = Tally()
        pools = set()
        for pool, device in self._devices():
            pools.add(pool)
            counts[pool, states.get((pool, device.name), HealthStatus.UNKNOWN)] += 1
            taints.update({(pool, taint.key, taint.effect) for taint in device.taints})
        devices = GaugeMetricFamily("dra_sdk_devices", "Published devices", labels=["driver", "pool", "health"])
        for pool in sorted(pools):
            for status in HealthStatus:
                devices.add_metric([self._driver, pool, status.name.lower()], counts[pool, status])
        tainted = GaugeMetricFamily(
            "dra_sdk_devices_tainted", "Published devices with a taint", labels=["driver", "pool", "key", "effect"]
        )
        for (pool, key, effect), number in sorted(taints.items()):
            tainted.add_metric([self._driver, pool, key, effect], number)
        yield devices
        yield tainted


class WithheldDevices(Collector):
    """The devices that are not published because the API server would drop what keeps claims apart.

    driver: the driver's name, a label of each value.
    read: returns them by pool, each with the feature gate that the server lacks.
    """

    def __init__(self, driver: str, read: Callable[[], Mapping[str, Mapping[str, str]]]) -> None:
        self._driver, self._read = driver, read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metric with a value of 1 for each device."""
        text = "1 for each device that is not published, because the API server lacks the feature gate that it needs"
        family = GaugeMetricFamily("dra_sdk_device_withheld", text, labels=["driver", "pool", "device", "gate"])
        for pool, withheld in self._read().items():
            for device, gate in withheld.items():
                family.add_metric([self._driver, pool, device, gate], 1)
        yield family


class Metrics:
    """The metrics of one driver in their own registry, so that a process can have several drivers.

    driver: the driver's name, a label of each metric.
    """

    def __init__(self, driver: str) -> None:
        self._registry = CollectorRegistry()
        self._driver = driver
        self._calls = self._times("call", "Duration of a claim's prepare or unprepare")
        self._hooks = self._times("hook", "Duration of the driver's own hooks")
        self._events: Callable[[str, str], Histogram] | None = None
        requests = Counter(
            "dra_sdk_api_requests",
            "Requests to the API server by method and status; status 0 is no answer",
            ["driver", "method", "status"],
            registry=self._registry,
        )
        self._requests = cache(partial(requests.labels, driver))
        self._refused = Counter(
            "dra_sdk_undo_steps_refused",
            "Steps of undoing claims that were refused: harmless, skipped by an operator, or dangerous",
            ["driver", "verdict"],
            registry=self._registry,
        )
        info = Gauge(
            "dra_sdk_build_info", "The version of dra-sdk; always 1", ["driver", "version"], registry=self._registry
        )
        info.labels(driver, _sdk_version()).set(1)
        ProcessCollector(registry=self._registry)

    def request(self, method: str, status: int) -> None:
        """Count one request to the API server."""
        self._requests(method, status).inc()

    def undone(self, steps: Iterable[UndoStep]) -> None:
        """Count the refused steps of an attempt to undo a claim."""
        for step in steps:
            if step.verdict in {Verdict.HARMLESS, Verdict.SKIPPED, Verdict.DANGEROUS}:
                self._refused.labels(self._driver, step.verdict.value).inc()

    def call(self, name: str) -> Timed:
        """Measure one prepare or unprepare."""
        return Timed(self._calls, name)

    def hook(self, name: str) -> Timed:
        """Measure one hook."""
        return Timed(self._hooks, name)

    def nri_event(self, name: str) -> Timed:
        """Measure the handling of one event of the container runtime."""
        if self._events is None:
            self._events = self._times("nri_event", "Duration of the driver's answer to an event of NRI", _NRI_BUCKETS)
        return Timed(self._events, name)

    def add_nri_gauges(
        self, connected: Callable[[], float], connections: Callable[[], float], failures: Callable[[], float]
    ) -> None:
        """Add the values of the connection to the container runtime that are read at each scrape."""
        self._gauge("nri_connected", "Whether the container runtime calls the driver", connected)
        self._counter("nri_connections", "Connections to the container runtime", connections)
        self._counter("nri_failed_updates", "Containers that could not be changed", failures)

    def add_gauges(self, preparer: Preparer, registration: Registration, slices: SliceController) -> None:
        """Add the values that are read at each scrape."""
        gauges: dict[str, tuple[str, Callable[[], float]]] = {
            "claims_held": ("Claims that hold devices", lambda: len(preparer.held())),
            "claims_held_by_undo": ("Claims that a step of their undo holds", lambda: len(preparer.held_by_undo())),
            "state_files_unreadable": ("State files that need an operator", lambda: len(preparer.unreadable())),
            "registered": ("Whether the kubelet has registered us", registration.registered.is_set),
            "slices_synced": ("Whether the API server has all that was published", lambda: slices.synced),
        }
        counters: dict[str, tuple[str, Callable[[], float]]] = {
            "slices_created": ("ResourceSlices created", lambda: slices.stats.creates),
            "slices_updated": ("ResourceSlices updated", lambda: slices.stats.updates),
            "slices_deleted": ("ResourceSlices deleted", lambda: slices.stats.deletes),
            "slice_errors": ("Problems with publishing", lambda: slices.stats.errors),
        }
        for name, (text, read) in gauges.items():
            self._gauge(name, text, read)
        for name, (text, read) in counters.items():
            self._counter(name, text, read)
        self._registry.register(WithheldDevices(self._driver, lambda: slices.withheld))

    def add_devices(
        self, devices: Callable[[], Iterable[tuple[str, Device]]], health: Callable[[], Sequence[DeviceHealth]]
    ) -> None:
        """Add the numbers of published devices, of which `health` has the latest reports."""
        self._registry.register(_Devices(self._driver, devices, health))

    def add_driver_gauges(self, read: Callable[[], Sequence[metric.Gauge]]) -> None:
        """Add the values of the driver's own, which `read` returns at each scrape."""
        self._registry.register(DriverGauges(self._driver, read))

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        gauge = Gauge(f"dra_sdk_{name}", text, ["driver"], registry=self._registry)
        gauge.labels(self._driver).set_function(read)

    def _counter(self, name: str, text: str, read: Callable[[], float]) -> None:
        self._registry.register(_ReadCounter(self._driver, f"dra_sdk_{name}", f"{text} since the start", read))

    def _times(self, kind: str, text: str, buckets: Sequence[float] = _BUCKETS) -> Callable[[str, str], Histogram]:
        """Return the histogram of a name and a result. They are kept: a lookup costs more than the measurement."""
        name, labels = f"dra_sdk_{kind}_seconds", ["driver", kind.removeprefix("nri_"), "result"]
        histogram = Histogram(name, text, labels, buckets=buckets, registry=self._registry)
        return cache(partial(histogram.labels, self._driver))


def _sdk_version() -> str:
    try:
        return version("dra-sdk")
    except PackageNotFoundError:  # a checkout on PYTHONPATH has no version
        return "unknown"
