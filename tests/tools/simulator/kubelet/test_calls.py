from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from dra_sdk.model.claim import ClaimRef
from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator.kubelet.calls import ClaimResponse, ClaimsResponse, Exchange, KubeletCalls, method_path
from dra_sdk.tools.simulator.kubelet.records import AnsweredDevice
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.wire.proto.pluginregistration_v1_pb2 import InfoRequest, PluginInfo

METHOD = "/pluginregistration.Registration/GetInfo"
LIMIT = 4 * 1024 * 1024  # of grpc-go, which the kubelet does not change
STREAM = "/pluginregistration.Registration/Infos"
CLAIM = ClaimRef("ns", "claim", "uid-1")
DEVICE = AnsweredDevice("gpu.example.com", "pool", "gpu-0", ("gpu",), ("a/b=c", "a/b=d"))


def info(_request: Any, _context: Any) -> PluginInfo:
    return PluginInfo(type="DRAPlugin", name="gpu.example.com")


def sized(size: int) -> Callable[[Any, Any], PluginInfo]:
    """A method whose answer has that many bytes: a tag, four bytes of length, and a name."""
    return lambda _request, _context: PluginInfo(name="x" * (size - 5))


def infos(_request: Any, context: Any) -> Iterator[PluginInfo]:
    yield from (PluginInfo(name=str(number)) for number in range(2))
    context.abort(grpc.StatusCode.ABORTED, "enough")


@pytest.fixture
def recorded() -> list[Exchange]:
    return []


@pytest.fixture
def calls(socket_dir: Path, recorded: list[Exchange]) -> Iterator[KubeletCalls]:
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        serialize, read = PluginInfo.SerializeToString, InfoRequest.FromString
        unary, full, too_large = (
            grpc.unary_unary_rpc_method_handler(answer, request_deserializer=read, response_serializer=serialize)
            for answer in (info, sized(LIMIT), sized(LIMIT + 1))
        )
        many = grpc.unary_stream_rpc_method_handler(infos, request_deserializer=read, response_serializer=serialize)
        methods = {"GetInfo": unary, "Infos": many, "Full": full, "TooLarge": too_large}
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("pluginregistration.Registration", methods),)
        )
        server.add_insecure_port(f"unix:{socket_dir}/s")
        server.start()
        with closing(KubeletCalls(socket_dir / "s", KubeletTiming(), record=recorded.append)) as calls:
            yield calls
        server.stop(0).wait()


def answer(claims: dict[str, ClaimResponse], *, ok: bool = True) -> ClaimsResponse:
    code, details = (grpc.StatusCode.OK, "") if ok else (grpc.StatusCode.INTERNAL, "broken")
    return ClaimsResponse(code, details, 0.0, "NodePrepareResources", claims)


def test_a_call_is_answered_and_recorded(calls: KubeletCalls, recorded: list[Exchange]) -> None:
    result = calls.call(METHOD, InfoRequest(), PluginInfo, LONG)
    assert result.ok
    assert result.status == "OK"
    assert result.message
    assert result.message.name == "gpu.example.com"
    (exchange,) = recorded
    assert exchange.method == "GetInfo"
    assert exchange.answer == {"type": "DRAPlugin", "name": "gpu.example.com"}


def test_an_error_is_a_result(calls: KubeletCalls, recorded: list[Exchange]) -> None:
    result = calls.call("/no.Such/Method", b"\x01\x02", PluginInfo, LONG)
    assert not result.ok
    assert result.status.startswith("UNIMPLEMENTED: ")
    assert result.message is None
    (exchange,) = recorded
    assert exchange.request == {"bytes": "0102"}
    assert exchange.answer == result.status


@pytest.mark.parametrize(("method", "code"), [("Full", "OK"), ("TooLarge", "RESOURCE_EXHAUSTED")])
def test_an_answer_is_as_large_as_the_kubelet_accepts(calls: KubeletCalls, method: str, code: str) -> None:
    path = f"/pluginregistration.Registration/{method}"
    assert calls.call(path, InfoRequest(), PluginInfo, LONG).code.name == code


def test_a_socket_without_a_server_is_unavailable(socket_dir: Path) -> None:
    with closing(KubeletCalls(socket_dir / "absent", KubeletTiming())) as calls:
        assert calls.get_info(LONG).code is grpc.StatusCode.UNAVAILABLE


def test_a_call_on_a_closed_connection_is_cancelled(socket_dir: Path) -> None:
    calls = KubeletCalls(socket_dir / "absent", KubeletTiming())
    calls.close()
    assert calls.get_info(LONG).code is grpc.StatusCode.CANCELLED


def test_a_stream_has_the_result_that_it_ended_with(calls: KubeletCalls, recorded: list[Exchange]) -> None:
    stream = calls.stream(STREAM, InfoRequest(), PluginInfo, LONG)
    assert [message.name for message in stream] == ["0", "1"]
    assert stream.result
    assert stream.result.code is grpc.StatusCode.ABORTED
    assert recorded[-1].answer == "ABORTED: enough"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (answer({"uid-1": ClaimResponse("", (DEVICE,))}), ""),
        (answer({"uid-1": ClaimResponse("")}), ""),
        (answer({}, ok=False), "NodePrepareResources failed as a whole: INTERNAL: broken"),
        (answer({}), "NodePrepareResources has no entry for claim ns/claim (UID uid-1)"),
        (
            answer({"uid-1": ClaimResponse(""), "uid-2": ClaimResponse("")}),
            "NodePrepareResources has an entry for the claim UID 'uid-2', which was not requested",
        ),
        (
            answer({"uid-1": ClaimResponse("no luck")}),
            "NodePrepareResources failed for claim ns/claim: no luck",
        ),
    ],
)
def test_the_kubelet_judges_an_answer(given: ClaimsResponse, problem: str) -> None:
    assert given.problem([CLAIM]) == problem


def test_a_claim_is_refused_by_its_entry_or_by_the_whole_call() -> None:
    assert answer({}, ok=False).refuses(CLAIM)
    assert answer({"uid-1": ClaimResponse("no luck")}).refuses(CLAIM)
    assert not answer({"uid-1": ClaimResponse("", (DEVICE,))}).refuses(CLAIM)
    assert not answer({}).refuses(CLAIM)


def test_an_entry_has_the_cdi_ids_of_all_devices() -> None:
    assert ClaimResponse("", (DEVICE, DEVICE)).cdi_ids == ("a/b=c", "a/b=d", "a/b=c", "a/b=d")


def test_equivalent_entries_may_have_another_order() -> None:
    other = replace(DEVICE, device="gpu-1", cdi_ids=("a/b=e",))
    swapped = replace(DEVICE, cdi_ids=DEVICE.cdi_ids[::-1])
    assert ClaimResponse("", (DEVICE, other)).equivalent(ClaimResponse("", (other, swapped)))
    assert not ClaimResponse("", (DEVICE,)).equivalent(ClaimResponse("", (replace(DEVICE, share_id="x"),)))


def test_the_path_of_a_method_has_the_full_name_of_the_version() -> None:
    path = method_path("v1.DRAPlugin", "NodePrepareResources")
    assert path == "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
