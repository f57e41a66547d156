"""Traces of a driver: the spans of a call, joined to the caller's trace, in memory and at a real OTLP receiver."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from dra_sdk import Claim, PreparedDevice
from dra_sdk.loader import Driver
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator import AllocatedDevice, ClaimRef, EmbeddedCluster
from dra_sdk.tracing import DISABLED, EXPORTERS, Tracing, wanted
from dra_sdk.wire.proto import dra_v1_pb2
from tests.embedded import settings_for
from tests.lamps import NAME, LampConfig, LampDriver

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACE, PARENT = 0x0AF7651916CD43DD8448EB211C80319C, 0x00F067AA0BA902B7
HEADER = f"00-{TRACE:032x}-{PARENT:016x}-01"
_METHODS = {"Prepare": dra_v1_pb2.NodePrepareResourcesResponse, "Unprepare": dra_v1_pb2.NodeUnprepareResourcesResponse}


class FailingLamps(LampDriver):
    """A claim called `broken` fails."""

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        if claim.name == "broken":
            raise OSError("no bulb")
        yield from super().dra_prepare(claim)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.create_class("lamp")
        yield running


def claimed(cluster: EmbeddedCluster, name: str) -> ClaimRef:
    """An allocated claim that a pod of the same name uses."""
    cluster.create_claim(name, {"light": "lamp"})
    claim = cluster.allocate(name, [AllocatedDevice("light", NAME, cluster.node_name, "lamp-0")])
    cluster.create_pod(name, [name])
    return ClaimRef("default", name, claim["metadata"]["uid"])


def call(socket: Path, kind: str, ref: ClaimRef, metadata: Sequence[tuple[str, str]] = ()) -> str:
    """One call as a kubelet makes it, with these headers; the claim's error."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        stub = channel.unary_unary(
            f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/Node{kind}Resources",
            request_serializer=dra_v1_pb2.NodePrepareResourcesRequest.SerializeToString,
            response_deserializer=_METHODS[kind].FromString,
        )
        claim = dra_v1_pb2.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid)
        answer: Any = stub(dra_v1_pb2.NodePrepareResourcesRequest(claims=[claim]), timeout=LONG, metadata=metadata)
    return str(answer.claims[ref.uid].error)


class Traced:
    """A driver with tracing, and the spans that have ended."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.memory = InMemorySpanExporter()
        self.tracing = Tracing({}, self.memory)
        self.process = DriverProcess(Driver.of(FailingLamps(), [self.tracing]), settings_for(cluster))

    def spans(self) -> list[ReadableSpan]:
        self.tracing.stop()  # sends what is left
        return list(self.memory.get_finished_spans())


@pytest.fixture
def traced(cluster: EmbeddedCluster) -> Iterator[Traced]:
    made = Traced(cluster)
    with made.process:
        cluster.kubelet.wait_for_driver(NAME)
        cluster.wait_slices(NAME)
        yield made
    made.tracing.stop()


def tree(spans: Sequence[ReadableSpan], root: ReadableSpan) -> Any:
    """The names of a span's descendants, in the order in which they began."""
    children = [each for each in spans if each.parent and each.parent.span_id == root.context.span_id]
    return [(each.name, tree(spans, each)) for each in sorted(children, key=lambda span: span.start_time or 0)]


def of_calls(spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
    return [each for each in spans if each.kind is SpanKind.SERVER]


def test_a_call_is_a_tree_of_spans_in_the_trace_of_its_caller(cluster: EmbeddedCluster, traced: Traced) -> None:
    ref = claimed(cluster, "one")
    headers = [("traceparent", HEADER), ("tracestate", "kubelet=1")]
    assert call(traced.process.paths.service, "Prepare", ref, headers) == ""
    spans = traced.spans()
    (root,) = of_calls(spans)
    assert (root.name, root.context.trace_id, root.parent and root.parent.span_id) == (
        "NodePrepareResources",
        TRACE,
        PARENT,
    )
    assert tree(spans, root) == [
        (
            "prepare",
            [
                ("read claim", []),
                ("write state file", []),
                ("dra_prepare", [("write state file", [])]),
                ("write CDI spec", []),
                ("write state file", []),
            ],
        )
    ]
    mine = {each.name: each for each in spans if each.context.trace_id == TRACE}
    assert dict(mine["prepare"].attributes or {}) == {
        "dra.driver": NAME,
        "dra.claim": "default/one",
        "dra.uid": ref.uid,
    }
    hook = dict(mine["dra_prepare"].attributes or {})
    assert hook["dra.devices"] == (f"{cluster.node_name}/lamp-0",)
    assert hook["dra.pods"] == ("one",)
    assert root.resource.attributes["service.name"] == NAME


def test_a_call_without_a_parent_begins_a_trace_of_its_own(cluster: EmbeddedCluster, traced: Traced) -> None:
    """As with the kubelets of 1.36 and 1.37."""
    claimed(cluster, "one")
    pod = cluster.run_pod("one")
    cluster.kubelet.stop_pod(pod.uid)
    spans = traced.spans()
    prepare, unprepare = of_calls(spans)
    assert prepare.parent is None
    assert unprepare.parent is None
    assert prepare.context.trace_id != unprepare.context.trace_id
    ((name, steps),) = tree(spans, unprepare)
    assert name == "unprepare"
    assert [step for step, _ in steps] == ["dra_unprepare", "remove CDI spec", "remove state file"]


def test_a_failure_is_told_by_the_spans_of_its_claim(cluster: EmbeddedCluster, traced: Traced) -> None:
    assert "no bulb" in call(traced.process.paths.service, "Prepare", claimed(cluster, "broken"))
    failed = {each.name for each in traced.spans() if each.status.status_code is StatusCode.ERROR}
    assert failed == {"dra_prepare", "prepare"}


def test_discovery_is_traced_too(cluster: EmbeddedCluster, traced: Traced) -> None:
    assert "dra_discover" in {each.name for each in traced.spans()}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({ENDPOINT: "http://collector:4317"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4317"}, True),
        ({ENDPOINT: "http://collector:4317", DISABLED: "true"}, False),
        ({ENDPOINT: "http://collector:4317", EXPORTERS: "none"}, False),
        ({EXPORTERS: "console"}, True),
    ],
)
def test_only_the_standard_variables_begin_a_trace(environment: dict[str, str], expected: bool) -> None:
    assert wanted(environment) is expected


@pytest.mark.parametrize(
    ("more", "told"),
    [({EXPORTERS: "zipkin"}, "zipkin"), ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "http/protobuf")],
)
def test_what_is_asked_for_and_not_known_is_told(
    more: dict[str, str], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not wanted({ENDPOINT: "http://collector:4317", **more})
    assert told in caplog.text


def test_without_the_extra_the_driver_runs_and_the_command_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    driver = Driver.of(FailingLamps(), [Tracing({ENDPOINT: "http://collector:4317"})])
    assert driver.info.name == NAME
    assert "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-grpc" in caplog.text


def test_nothing_of_opentelemetry_is_imported_unless_it_is_asked_for() -> None:
    code = """
import sys
from dra_sdk.loader import load_driver
load_driver("cpu").steps.step("prepare").__enter__()
print([each for each in sys.modules if each.startswith("opentelemetry")])
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# -- a real receiver


class Receiver:
    """An OTLP receiver on loopback.

    requests: what was exported to it.
    """

    def __init__(self) -> None:
        self.requests: Queue[Any] = Queue()
        self._pool = ThreadPoolExecutor(2)
        self._server = grpc.server(self._pool)
        handler = grpc.unary_unary_rpc_method_handler(
            self._export,
            request_deserializer=otlp.ExportTraceServiceRequest.FromString,
            response_serializer=otlp.ExportTraceServiceResponse.SerializeToString,
        )
        service = "opentelemetry.proto.collector.trace.v1.TraceService"
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": handler}),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def spans(self, name: str) -> Iterator[Any]:
        """Spans as they come, until one of this name."""
        while True:
            request = self.requests.get(timeout=LONG)
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    yield from scope.spans
                    if any(each.name == name for each in scope.spans):
                        return

    def close(self) -> None:
        self._server.stop(0).wait()
        self._pool.shutdown()

    def _export(self, request: Any, _context: grpc.ServicerContext) -> Any:
        self.requests.put(request)
        return otlp.ExportTraceServiceResponse()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@contextmanager
def running(cluster: EmbeddedCluster, folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A driver's process that sends its spans to a port, ended by SIGTERM."""
    (folder / "lamp.py").write_text(LAMP)
    command = [
        sys.executable, "-m", "dra_sdk.cli.main", "run", "lamp:Lamp", "--node-name", cluster.node_name,
        "--kubeconfig", str(cluster.kubeconfig), "--kubelet-dir", str(cluster.registry_dir.parent),
        "--cdi-dir", str(cluster.cdi_dir),
    ]  # fmt: skip
    variables = environment(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}", OTEL_BSP_SCHEDULE_DELAY="50")
    with subprocess.Popen(command, cwd=folder, env=variables, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(LONG)


def environment(**more: str) -> dict[str, str]:
    own = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
    return {**own, "PYTHONPATH": ":".join(sys.path), **more}


def test_a_driver_process_sends_its_spans_to_a_collector(
    cluster: EmbeddedCluster, receiver: Receiver, tmp_path: Path
) -> None:
    with running(cluster, tmp_path, receiver.port) as process:
        (plugin,) = cluster.kubelet.wait_for_driver(NAME, timeout=LONG)
        ref = claimed(cluster, "one")
        assert call(Path(plugin.endpoint), "Prepare", ref, [("traceparent", HEADER)]) == ""
        found = list(receiver.spans("NodePrepareResources"))
    assert process.returncode == 0
    (root,) = [each for each in found if each.name == "NodePrepareResources"]
    assert root.trace_id == TRACE.to_bytes(16, "big")
    assert root.parent_span_id == PARENT.to_bytes(8, "big")
    assert {each.name for each in found if each.trace_id == root.trace_id} >= {"prepare", "dra_prepare", "read claim"}


def test_a_collector_that_is_away_fails_no_call_and_does_not_hold_the_driver(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    with socket.socket() as reserved:  # it does not listen, so a connection is refused, and nobody else has its port
        reserved.bind(("127.0.0.1", 0))
        with running(cluster, tmp_path, reserved.getsockname()[1]) as process:
            (plugin,) = cluster.kubelet.wait_for_driver(NAME, timeout=LONG)
            assert call(Path(plugin.endpoint), "Prepare", claimed(cluster, "one")) == ""
    assert process.returncode == 0


LAMP = f'''
from dra_sdk import ContainerEdits, Device, DriverInfo

class Lamp:
    def dra_driver_info(self):
        return DriverInfo("{NAME}")

    def dra_discover(self, node):
        return [Device("lamp-0")]

    def dra_prepare(self, claim):
        for device in claim.devices:
            yield device.prepared(ContainerEdits(env={{"LAMP": device.name}}))
'''
