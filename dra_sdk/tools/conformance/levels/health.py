"""The health stream, for drivers that offer one."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from dra_sdk.tools.conformance import inventory
from dra_sdk.tools.conformance.check import Level, NotApplicable, expect
from dra_sdk.tools.conformance.plugin import HEALTH_VERSIONS, PluginClient
from dra_sdk.tools.conformance.rpc import to_json
from dra_sdk.tools.conformance.run import Run

LEVEL = Level("health", "Device health")
PROTO = "k8s.io/kubelet pkg/apis/dra-health/v1alpha1/api.proto"
KUBELET = "Kubernetes pkg/kubelet/cm/dra/manager.go, HandleWatchResourcesStream"
E2E = "Kubernetes test/e2e_node/dra_test.go"
DEFAULT_TIMEOUT = 30
MESSAGE_LENGTH = 1024
CLOCK_SKEW = 5


@LEVEL.must("HLTH-001", f"{KUBELET}; KEP-4680")
def reports_at_once(run: Run) -> None:
    """A stream of each offered version begins with a report."""
    for version in offered(run):
        expect(_first(run, version), f"no report of {version} came")


@LEVEL.must("HLTH-002", f"{PROTO}, DeviceIdentifier")
def reports_its_own_devices(run: Run) -> None:
    """Reports are about devices that the driver has published, by pool and name."""
    known = inventory.published(run.claims.slices())
    for version in offered(run):
        strange = sorted(devices_of(_first(run, version)) - known)
        expect(not strange, f"{version} reports devices that are not published", devices=strange)


@LEVEL.should("HLTH-003", f"{PROTO}, NodeWatchResourcesResponse")
def reports_all_devices(run: Run) -> None:
    """The first reports of a stream tell of every published device."""
    known = inventory.published(run.settled_slices())
    for version in offered(run):
        seen: set[tuple[str, str]] = set()
        for report in _reports(run.driver.service, version, run.patience.health):
            seen |= devices_of(report)
            if seen >= known:
                break
        expect(seen >= known, f"{version} does not report all devices", missing=sorted(known - seen))


@LEVEL.must("HLTH-004", f"{PROTO}, DeviceHealth")
def reports_make_sense(run: Run) -> None:
    """A report has a known health, a time that is not in the future, and at most 1024 characters of text."""
    for version in offered(run):
        report = _first(run, version)
        for each in report.devices if report else ():
            shown = to_json(each)
            expect(each.health in {0, 1, 2}, f"health {each.health} is none of 0, 1 and 2", device=shown)
            expect(each.last_updated_time <= time.time() + CLOCK_SKEW, "last_updated_time is to come", device=shown)
            expect(len(each.message) <= MESSAGE_LENGTH, f"the message has {len(each.message)} characters", device=shown)


@LEVEL.must("HLTH-005", f"{KUBELET}: before 1.37 a stream is opened to every driver")
def says_that_it_has_no_health(run: Run) -> None:
    """A driver that offers no health service answers UNIMPLEMENTED to who asks all the same."""
    for version in HEALTH_VERSIONS:
        if version not in run.driver.info.supported_versions:
            stream = run.driver.service.watch_health(version, run.patience.health)
            got = next(iter(stream), None)
            stream.cancel()
            expect(got is None, f"{version} is not offered, but reports")
            code = stream.code.name if stream.code else "nothing"
            expect(code == "UNIMPLEMENTED", f"{version} is not offered, and answers {code}")
            return
    raise NotApplicable("every health service is offered")


@LEVEL.must("HLTH-006", f"{E2E}, must reuse one gRPC connection for service and health-monitoring calls")
def prepares_while_it_reports(run: Run) -> None:
    """Claims are prepared while health streams are open on the same connection."""
    client = run.driver.connect()
    streams = [client.watch_health(version, run.patience.health) for version in offered(run)]
    try:
        for stream in streams:
            next(iter(stream), None)
        claim = run.claims.one()
        for call in (client.prepare, client.unprepare):
            problem = call([claim.ref], run.driver.version).problem([claim.ref])
            expect(not problem, f"with a health stream open: {problem}")
    finally:
        for stream in streams:
            stream.cancel()
        client.channel.close()


@LEVEL.must("HLTH-007", f"{E2E}, should automatically reconnect both DRA and Health API")
def reports_again_to_a_new_kubelet(run: Run) -> None:
    """A stream that broke off can be opened again, and begins with a report again."""
    for version in offered(run):
        for _ in range(3):
            client = run.driver.connect()
            report = next(_reports(client, version, run.patience.health), None)
            client.channel.close()
            expect(report, f"a further stream of {version} brought no report")


@LEVEL.should("HLTH-008", f"{KUBELET}: a device that is not refreshed in time is Unknown")
def refreshes_in_time(run: Run) -> None:
    """A device's health is told again before its health_check_timeout_seconds (30 where none is given) are over."""
    for version in offered(run):
        reports = _reports(run.driver.service, version, run.patience.health)
        first = next(reports, None)
        expect(first is not None and first.devices, f"no report of {version} about a device came")
        assert first is not None
        due = min(_timeout(each) for each in first.devices)
        began = time.monotonic()
        second = next(reports, None)
        seconds = time.monotonic() - began
        reports.close()
        expect(second, f"{version}: no second report within {run.patience.health:g} s, the timeout is {due} s")
        expect(seconds <= due, f"{version}: the second report came after {seconds:.1f} s, the timeout is {due} s")


def offered(run: Run) -> list[str]:
    """The health services that the driver offers; NotApplicable without any."""
    found = [each for each in run.driver.info.supported_versions if each in HEALTH_VERSIONS]
    if not found:
        raise NotApplicable("the driver offers no health service")
    return found


def devices_of(report: Any) -> set[tuple[str, str]]:
    """The devices of a report, by pool and name."""
    return {(each.device.pool_name, each.device.device_name) for each in report.devices} if report else set()


def _timeout(device: Any) -> int:
    seconds = int(device.health_check_timeout_seconds)
    return seconds if seconds > 0 else DEFAULT_TIMEOUT


def _first(run: Run, version: str) -> Any:
    return next(_reports(run.driver.service, version, run.patience.health), None)


def _reports(client: PluginClient, version: str, timeout: float) -> Generator[Any, None, None]:
    """The reports of a stream that is ended with the iteration."""
    stream = client.watch_health(version, timeout)
    try:
        yield from stream
    finally:
        stream.cancel()
