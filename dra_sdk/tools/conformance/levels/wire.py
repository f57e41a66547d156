"""Protobuf and gRPC over the service socket."""

from __future__ import annotations

from dra_sdk.tools.conformance.check import Level, NotApplicable, expect
from dra_sdk.tools.conformance.plugin import PLUGIN_VERSIONS, PREPARE, UNPREPARE, method_path
from dra_sdk.tools.conformance.rpc import Answer
from dra_sdk.tools.conformance.run import Run
from dra_sdk.wire.proto import dra_v1_pb2

LEVEL = Level("wire", "gRPC and protobuf")
PROTO = "k8s.io/kubelet pkg/apis/dra/v1/api.proto"
GRPC = "gRPC core concepts: status codes"
PROTOBUF = "Protocol Buffers language guide (proto3)"
UNKNOWN_FIELD = bytes([0xFA, 0x3F, 3]) + b"new"  # field 1023, length-delimited
NOT_PROTOBUF = b"\x0a\xff\xff\xff\xff\xff\xff"
TIMEOUT = 20.0  # seconds; a driver that answers at all needs milliseconds


@LEVEL.must("WIRE-001", f"{PROTO}; Kubernetes pkg/kubelet/cm/dra/plugin/dra_plugin.go")
def serves_every_version_that_it_offers(run: Run) -> None:
    """Each offered version is served by its full name, `k8s.io.kubelet.pkg.apis.dra.<version>`, with both methods."""
    for version in versions(run):
        for call in (run.subject.prepare, run.subject.unprepare):
            answer = call([], version, timeout=TIMEOUT)
            expect(answer.ok, f"{answer.method} of {version} for no claims: {answer.status}")
            expect(not answer.entries, f"{answer.method} of {version} for no claims has entries")


@LEVEL.must("WIRE-002", GRPC)
def knows_what_it_does_not_serve(run: Run) -> None:
    """A method or service that the driver does not have is answered with UNIMPLEMENTED."""
    for path in (method_path("v1.DRAPlugin", "NodeFutureResources"), "/k8s.io.kubelet.pkg.apis.dra.v9.DRAPlugin/Any"):
        answer = _raw(run, path, b"")
        expect(answer.code.name == "UNIMPLEMENTED", f"{path}: {answer.status}")


@LEVEL.must("WIRE-003", f"{PROTOBUF}, Unknown Fields")
def reads_over_unknown_fields(run: Run) -> None:
    """Fields that a newer kubelet may send are read over."""
    for version in versions(run):
        for method in (PREPARE, UNPREPARE):
            answer = _raw(run, method_path(version, method), UNKNOWN_FIELD)
            expect(answer.ok, f"{method} of {version} with a field that is new: {answer.status}")


@LEVEL.must("WIRE-004", GRPC)
def survives_what_is_no_message(run: Run) -> None:
    """Bytes that are no message are answered with an error, and the next call as if nothing had been."""
    path = method_path(run.driver.version, PREPARE)
    answer = _raw(run, path, NOT_PROTOBUF)
    expect(not answer.ok, "bytes that are no message were answered with OK")
    after = run.subject.prepare([], timeout=TIMEOUT)
    expect(after.ok, f"the next NodePrepareResources: {after.status}")


@LEVEL.must("WIRE-005", "KEP-4381, Communication between kubelet and kubelet plugin")
def answers_alike_in_every_version(run: Run) -> None:
    """v1 and v1beta1 are the same but for share_id: a claim gets the same devices, whichever the kubelet speaks."""
    offered = versions(run)
    if len(offered) == 1:
        raise NotApplicable(f"only {offered[0]} is offered")
    claim = run.claims.one()
    answers = {}
    for version in offered:
        devices = run.prepared_one(claim, version).devices
        answers[version] = sorted((each.pool, each.device, each.requests, each.cdi_ids) for each in devices)
    first, *others = answers.values()
    expect(all(other == first for other in others), "the versions answer differently", answers=answers)


def versions(run: Run) -> list[str]:
    """The DRAPlugin versions that the driver offers."""
    return [each for each in run.driver.info.supported_versions if each in PLUGIN_VERSIONS]


def _raw(run: Run, path: str, request: bytes) -> Answer[dra_v1_pb2.NodePrepareResourcesResponse]:
    return run.driver.service.channel.raw(path, request, dra_v1_pb2.NodePrepareResourcesResponse, TIMEOUT)
