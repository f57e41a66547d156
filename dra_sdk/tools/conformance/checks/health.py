"""The health stream of drivers that offer one."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from typing import Any, Final

import grpc

from dra_sdk.node.kubelet.health import HEALTH_VERSIONS
from dra_sdk.tools.conformance.allocatable import DeviceKey, published_devices
from dra_sdk.tools.conformance.check import Level
from dra_sdk.tools.conformance.outcomes import CheckFailedError, NotApplicableError, NotRunError, expect
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.simulator.kubelet.calls import KubeletCalls, Stream, to_json

HEALTH: Final = Level("health", "Device health")

_PROTO: Final = "k8s.io/kubelet pkg/apis/dra-health/v1alpha1/api.proto"
_KUBELET: Final = "Kubernetes pkg/kubelet/cm/dra/manager.go, HandleWatchResourcesStream"
_E2E: Final = "Kubernetes test/e2e_node/dra_test.go"
DEFAULT_TIMEOUT: Final = 30
"""Seconds until a device without health_check_timeout_seconds is Unknown."""
MAX_MESSAGE: Final = 1024
KNOWN_HEALTH: Final = {0, 1, 2}
CLOCK_SKEW: Final = 5
"""Seconds that a driver's clock may be ahead."""


@HEALTH.must("HLTH-001", f"{_KUBELET}; KEP-4680")
def reports_at_once(run: Run) -> None:
    """A stream of each offered version starts with a report."""
    for version in _offered_versions(run):
        expect(_first_report(run, version), f"no report of {version} arrived")


@HEALTH.must("HLTH-002", f"{_PROTO}, DeviceIdentifier")
def reports_only_published_devices(run: Run) -> None:
    """Reports name devices that the driver has published, by pool and name."""
    known = published_devices(run.claims.slices())
    for version in _offered_versions(run):
        unknown = sorted(_reported_devices(_first_report(run, version)) - known)
        expect(not unknown, f"{version} reports devices that are not published", devices=unknown)


@HEALTH.should("HLTH-003", f"{_PROTO}, NodeWatchResourcesResponse")
def reports_all_devices(run: Run) -> None:
    """The first reports of a stream contain every published device."""
    known = published_devices(run.settled_slices())
    for version in _offered_versions(run):
        seen: set[DeviceKey] = set()
        for report in _reports(run.instance.service, version, run.timeouts.health):
            seen |= _reported_devices(report)
            if seen >= known:
                break
        expect(seen >= known, f"{version} does not report all devices", missing=sorted(known - seen))


@HEALTH.must("HLTH-004", f"{_PROTO}, DeviceHealth")
def reports_are_valid(run: Run) -> None:
    """A report has a known health, a time that is not in the future, and at most 1024 characters of text."""
    for version in _offered_versions(run):
        report = _first_report(run, version)
        for status in report.devices if report else ():
            device = to_json(status)
            expect(status.health in KNOWN_HEALTH, f"health {status.health} is not 0, 1 or 2", device=device)
            in_the_past = status.last_updated_time <= time.time() + CLOCK_SKEW
            expect(in_the_past, "last_updated_time is in the future", device=device)
            size = len(status.message)
            expect(size <= MAX_MESSAGE, f"message has {size} characters, the limit is {MAX_MESSAGE}", device=device)


@HEALTH.must("HLTH-005", f"{_KUBELET}: before 1.37 a stream is opened to every driver")
def rejects_streams_without_a_health_service(run: Run) -> None:
    """A driver that offers no health service answers a health stream with UNIMPLEMENTED."""
    for version in HEALTH_VERSIONS:
        if version not in run.instance.info.supported_versions:
            stream = run.instance.service.watch_health(version, run.timeouts.health)
            report = next(iter(stream), None)
            stream.cancel()
            expect(report is None, f"{version} is not offered, but the driver reports")
            code = stream.result.code.name if stream.result else "nothing"
            expect(code == "UNIMPLEMENTED", f"{version} is not offered, and the driver answers {code}")
            return
    raise NotApplicableError("every health service is offered")


@HEALTH.must("HLTH-006", f"{_E2E}, must reuse one gRPC connection for service and health-monitoring calls")
def prepares_during_health_streams(run: Run) -> None:
    """Claims are prepared while health streams are open on the same connection."""
    with closing(run.instance.connect_service()) as client:
        streams = [client.watch_health(version, run.timeouts.health) for version in _offered_versions(run)]
        for stream in streams:
            next(iter(stream), None)
        claim = run.claims.create_one()
        for call in (client.prepare, client.unprepare):
            problem = call([claim.ref], run.instance.version).problem([claim.ref])
            expect(not problem, f"while a health stream is open: {problem}")


@HEALTH.must("HLTH-007", f"{_E2E}, should automatically reconnect both DRA and Health API")
def reports_again_after_reconnecting(run: Run) -> None:
    """After a stream breaks, it can be opened again, and starts with a report again."""
    for version in _offered_versions(run):
        for _ in range(3):
            with closing(run.instance.connect_service()) as client:
                report = next(_reports(client, version, run.timeouts.health), None)
            expect(report, f"another stream of {version} brought no report")


@HEALTH.should("HLTH-008", f"{_KUBELET}: a device that is not refreshed in time is Unknown")
def refreshes_in_time(run: Run) -> None:
    """A device's health is reported again within its health_check_timeout_seconds (30 if it gives none)."""
    for version in _offered_versions(run):
        stream = run.instance.service.watch_health(version, run.timeouts.health)
        try:
            _expect_refresh(run, version, stream)
        finally:
            stream.cancel()


def _expect_refresh(run: Run, version: str, stream: Stream[Any]) -> None:
    reports = iter(stream)
    first = next(reports, None)
    expect(first is not None and first.devices, f"no report of {version} about a device arrived")
    assert first is not None
    limit = min(_timeout(device) for device in first.devices)
    began = time.monotonic()
    second = next(reports, None)
    seconds = time.monotonic() - began
    if second is None and not (stream.result and stream.result.code is grpc.StatusCode.DEADLINE_EXCEEDED):
        ended = f"{version}: the stream ended after {seconds:.1f} s without a second report"
        if run.shared_node:
            raise NotRunError(
                f"{ended}; the node's kubelet may have opened one of its own, for which a driver may end it"
            )
        raise CheckFailedError(ended)
    expect(second, f"{version}: no second report within {run.timeouts.health:g} s, the limit is {limit} s")
    expect(seconds <= limit, f"{version}: the second report came after {seconds:.1f} s, the limit is {limit} s")


def _offered_versions(run: Run) -> list[str]:
    """Return the health services that the driver offers; NotApplicableError if there are none."""
    versions = [version for version in run.instance.info.supported_versions if version in HEALTH_VERSIONS]
    if not versions:
        raise NotApplicableError("the driver offers no health service")
    return versions


def _reported_devices(report: Any) -> set[DeviceKey]:
    return {(device.device.pool_name, device.device.device_name) for device in report.devices} if report else set()


def _timeout(device: Any) -> int:
    seconds = int(device.health_check_timeout_seconds)
    return seconds if seconds > 0 else DEFAULT_TIMEOUT


def _first_report(run: Run, version: str) -> Any:
    return next(_reports(run.instance.service, version, run.timeouts.health), None)


def _reports(client: KubeletCalls, version: str, timeout: float) -> Generator[Any, None, None]:
    """Yield the reports of a stream, which ends with the iteration."""
    stream = client.watch_health(version, timeout)
    try:
        yield from stream
    finally:
        stream.cancel()
