"""What a driver process measures of itself, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 45)  # seconds; the kubelet waits 45


class Metrics:
    """The metrics of one driver, in a registry of their own, so that several drivers fit in one process."""

    def __init__(self, driver: str) -> None:
        self._registry = CollectorRegistry()
        self._driver = driver
        self._calls = Histogram(
            "dra_sdk_call_seconds",
            "Duration of a claim's prepare or unprepare",
            ["driver", "call", "result"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._hooks = Histogram(
            "dra_sdk_hook_seconds",
            "Duration of the driver's own hooks",
            ["driver", "hook", "result"],
            buckets=_BUCKETS,
            registry=self._registry,
        )

        self._requests = Counter(
            "dra_sdk_api_requests",
            "Requests to the API server by method and status; status 0 is no answer",
            ["driver", "method", "status"],
            registry=self._registry,
        )

    def request(self, method: str, status: int) -> None:
        """Count one request to the API server."""
        self._requests.labels(self._driver, method, str(status)).inc()

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Measure one prepare or unprepare."""
        with self._measure(self._calls, name):
            yield

    @contextmanager
    def hook(self, name: str) -> Iterator[None]:
        """Measure one hook."""
        with self._measure(self._hooks, name):
            yield

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a value that is read when somebody asks for it."""
        Gauge(name, text, ["driver"], registry=self._registry).labels(self._driver).set_function(read)

    def text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self._registry)

    @contextmanager
    def _measure(self, histogram: Histogram, name: str) -> Iterator[None]:
        begun, result = perf_counter(), "error"
        try:
            yield
            result = "ok"
        finally:
            histogram.labels(self._driver, name, result).observe(perf_counter() - begun)
