"""The kubelet's protocol: how a driver registers, and gRPC and protobuf on its service socket."""

from __future__ import annotations

from contextlib import closing
from itertools import takewhile
from pathlib import Path
from typing import Final

from dra_sdk.node.kubelet.draplugin import VERSIONS
from dra_sdk.node.kubelet.health import HEALTH_VERSIONS
from dra_sdk.tools.conformance.check import Level, Need
from dra_sdk.tools.conformance.driver_under_test import DriverNotRunningError
from dra_sdk.tools.conformance.outcomes import CheckFailedError, NotApplicableError, expect, expect_ok
from dra_sdk.tools.conformance.run import UNKNOWN_FIELD, Run
from dra_sdk.tools.simulator.kubelet.calls import PLUGIN_TYPE, PREPARE, UNPREPARE, V1, RpcResult, method_path, to_json
from dra_sdk.wire.proto import dra_v1_pb2
from dra_sdk.wire.validation.names import driver_name

REGISTRATION: Final = Level("registration", "Registration with the kubelet")
WIRE: Final = Level("wire", "gRPC and protobuf")

_WATCHER: Final = "Kubernetes pkg/kubelet/pluginmanager/pluginwatcher/README.md"
_OPERATIONS: Final = "Kubernetes pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go"
_DRA_MANAGER: Final = "Kubernetes pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go"
_DRA_PLUGIN: Final = "Kubernetes pkg/kubelet/cm/dra/plugin/dra_plugin.go"
_E2E: Final = "Kubernetes test/e2e_node/dra_test.go"
_KEP: Final = "KEP-4381, Communication between kubelet and kubelet plugin"
_PROTO: Final = "k8s.io/kubelet pkg/apis/dra/v1/api.proto"
_GRPC: Final = "gRPC core concepts: status codes"
_PROTOBUF: Final = "Protocol Buffers language guide (proto3)"

MAX_SOCKET_PATH: Final = 107
"""Bytes of a unix socket's path."""
_TIMES: Final = 3
TIMEOUT: Final = 20.0
"""Seconds for calls that take a working driver milliseconds."""
NOT_PROTOBUF: Final = b"\x0a\xff\xff\xff\xff\xff\xff"


@REGISTRATION.must("REG-001", f"{_WATCHER}, Plugin Discovery")
def socket_is_found(run: Run) -> None:
    """The driver has a unix socket, whose name does not start with a dot, in the kubelet's registration directory."""
    try:
        run.driver.start()
    except DriverNotRunningError as error:
        raise CheckFailedError(str(error)) from error


@REGISTRATION.must("REG-002", f"{_OPERATIONS}, GenerateRegisterPluginFunc")
def get_info_within_one_second(run: Run) -> None:
    """GetInfo is answered within one second, the kubelet's deadline; on a busy machine, once in three times."""
    answers = (run.instance.registrar.get_info() for _ in range(_TIMES))
    statuses = [refusal.status for refusal in takewhile(lambda answer: not answer.ok, answers)]
    expect(len(statuses) < _TIMES, f"GetInfo, {_TIMES} times: {', '.join(map(str, statuses))}")
    first = [run.instance.get_info_seconds]
    while min(first) > run.timeouts.kubelet.get_info and len(first) < _TIMES and run.driver.launcher:
        first.append(run.driver.restart().get_info_seconds)
    took = ", ".join(f"{seconds:.2f} s" for seconds in first)
    expect(min(first) <= run.timeouts.kubelet.get_info, f"the first GetInfo after each start took {took}")


@REGISTRATION.must("REG-003", "k8s.io/kubelet pkg/apis/pluginregistration/v1/constants.go, DRAPlugin")
def plugin_type(run: Run) -> None:
    """PluginInfo.type is `DRAPlugin`: the kubelet passes no other type to its DRA manager."""
    kind = run.instance.info.type
    expect(kind == PLUGIN_TYPE, f"type is {kind!r}", info=to_json(run.instance.info))


@REGISTRATION.must("REG-004", "k8s.io/api resource/v1 ResourceSliceSpec.Driver")
def valid_driver_name(run: Run) -> None:
    """PluginInfo.name is the driver's name: a DNS subdomain of at most 63 characters."""
    problems = [str(problem) for problem in driver_name(run.instance.info.name, "name")]
    expect(not problems, "; ".join(problems), info=to_json(run.instance.info))


@REGISTRATION.must("REG-005", "k8s.io/kubelet pkg/apis/pluginregistration/v1/api.proto, PluginInfo.endpoint; unix(7)")
def valid_endpoint(run: Run) -> None:
    """PluginInfo.endpoint is the absolute path of a unix socket, or empty if the registration socket serves both."""
    endpoint = run.instance.info.endpoint
    path = Path(endpoint)
    expect(not endpoint or path.is_absolute(), f"endpoint {endpoint!r} is not absolute")
    expect(not endpoint or path.is_socket(), f"endpoint {endpoint!r} is not a socket")
    size = len(bytes(path))
    expect(size <= MAX_SOCKET_PATH, f"endpoint {endpoint!r} has {size} bytes, the limit is {MAX_SOCKET_PATH}")


@REGISTRATION.must("REG-006", f"{_DRA_MANAGER}, validateSupportedServices")
def supported_version(run: Run) -> None:
    """PluginInfo.supported_versions contains at least one of `v1.DRAPlugin` and `v1beta1.DRAPlugin`."""
    offered = list(run.instance.info.supported_versions)
    expect(set(offered) & set(VERSIONS), f"supported_versions are {offered}", info=to_json(run.instance.info))


@REGISTRATION.should("REG-007", f"{_KEP}; {_DRA_MANAGER}")
def newest_version_first(run: Run) -> None:
    """`v1.DRAPlugin` is offered, and newer versions come before older ones: kubelets take the first that they know."""
    versions = list(run.instance.info.supported_versions)
    expect(V1 in versions, f"{V1} is not among {versions}")
    for family in (VERSIONS, HEALTH_VERSIONS):
        offered = [version for version in versions if version in family]
        expect(offered == sorted(offered, key=list(family).index), f"supported_versions are in the order {versions}")


@REGISTRATION.must("REG-008", f"{_OPERATIONS}, notifyPlugin")
def acknowledges_registration(run: Run) -> None:
    """NotifyRegistrationStatus with plugin_registered=true is answered with OK; else the kubelet drops the driver."""
    expect_ok(run.instance.registration, "NotifyRegistrationStatus")


@REGISTRATION.must(
    "REG-009", f"{_E2E}, must recover and register after NotifyRegistrationStatus failure", Need.DISRUPTION
)
def survives_refused_registration(run: Run) -> None:
    """After the kubelet refuses the registration, the driver keeps running, and the next attempt can register it."""
    registrar = run.instance.registrar
    registrar.notify("refused by the conformance kit")
    expect(not run.driver.crash, run.driver.crash)
    expect_ok(registrar.get_info(), "GetInfo after the refusal")
    expect_ok(registrar.notify(), "NotifyRegistrationStatus after the refusal")
    expect_ok(run.driver.prepare([]), "NodePrepareResources after the refusal")


@REGISTRATION.must("REG-010", f"{_E2E}, must register after Kubelet restart")
def registers_again_after_kubelet_restart(run: Run) -> None:
    """A restarted kubelet finds the same socket, gets the same PluginInfo and can register the driver again."""
    with closing(run.instance.connect_registrar()) as registrar:
        again = registrar.get_info()
        expect(again.message == run.instance.info, "GetInfo differs from the first", first=to_json(run.instance.info))
        expect_ok(registrar.notify(), "NotifyRegistrationStatus")


@REGISTRATION.must("REG-011", f"{_WATCHER}, Monitoring Plugin Connection", Need.RESTART)
def service_is_ready_at_registration(run: Run) -> None:
    """The service answers as soon as GetInfo does, because the kubelet may call it at once."""
    expect_ok(run.instance.first_prepare, "NodePrepareResources right after GetInfo")


@REGISTRATION.should("REG-012", f"{_WATCHER}, Plugin Discovery")
def socket_is_named_after_the_driver(run: Run) -> None:
    """The registration socket's file name starts with the driver's name and ends in `.sock`, so that none collide."""
    name, driver = run.instance.registration_socket.name, run.instance.info.name
    expect(name.startswith(driver) and name.endswith(".sock"), f"driver {driver} names its socket {name}")


@WIRE.must("WIRE-001", f"{_PROTO}; {_DRA_PLUGIN}")
def serves_every_offered_version(run: Run) -> None:
    """Each offered version is served by its full name, `k8s.io.kubelet.pkg.apis.dra.<version>`, with both methods."""
    for version in _offered_versions(run):
        for call in (run.driver.prepare, run.driver.unprepare):
            answer = call([], version, TIMEOUT)
            expect_ok(answer, f"{answer.method} of {version} for no claims")
            expect(not answer.claims, f"{answer.method} of {version} for no claims has entries")


@WIRE.must("WIRE-002", _GRPC)
def rejects_unknown_methods(run: Run) -> None:
    """An unknown method or service is answered with UNIMPLEMENTED."""
    for path in (method_path(V1, "NodeFutureResources"), "/k8s.io.kubelet.pkg.apis.dra.v9.DRAPlugin/Any"):
        answer = _call(run, path, b"")
        expect(answer.code.name == "UNIMPLEMENTED", f"{path}: {answer.status}")


@WIRE.must("WIRE-003", f"{_PROTOBUF}, Unknown Fields")
def ignores_unknown_fields(run: Run) -> None:
    """Unknown fields, which a newer kubelet may send, are ignored."""
    for version in _offered_versions(run):
        for method in (PREPARE, UNPREPARE):
            answer = _call(run, method_path(version, method), UNKNOWN_FIELD)
            expect_ok(answer, f"{method} of {version} with an unknown field")


@WIRE.must("WIRE-004", _GRPC)
def survives_invalid_messages(run: Run) -> None:
    """Bytes that are not a message are answered with an error, and the next call succeeds."""
    answer = _call(run, method_path(run.instance.version, PREPARE), NOT_PROTOBUF)
    expect(not answer.ok, "bytes that are not a message were answered with OK")
    expect_ok(run.driver.prepare([], timeout=TIMEOUT), "the next NodePrepareResources")


@WIRE.must("WIRE-005", _KEP)
def same_answer_in_every_version(run: Run) -> None:
    """v1 and v1beta1 differ only in share_id: a claim gets the same devices in the version that the kubelet speaks."""
    offered = _offered_versions(run)
    if len(offered) == 1:
        raise NotApplicableError(f"only {offered[0]} is offered")
    claim = run.claims.create_one()
    answers = {}
    for version in offered:
        devices = run.prepare_one(claim, version).devices
        answers[version] = sorted((device.pool, device.device, device.requests, device.cdi_ids) for device in devices)
    first, *others = answers.values()
    expect(all(other == first for other in others), "the versions answer differently", answers=answers)


def _offered_versions(run: Run) -> list[str]:
    return [version for version in run.instance.info.supported_versions if version in VERSIONS]


def _call(run: Run, path: str, request: bytes) -> RpcResult[dra_v1_pb2.NodePrepareResourcesResponse]:
    response = dra_v1_pb2.NodePrepareResourcesResponse
    return run.instance.service.call(path, request, response, TIMEOUT)
