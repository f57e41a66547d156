from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from dra_sdk.tools.conformance.evidence import Recorder
from dra_sdk.tools.conformance.rpc import Channel
from dra_sdk.wire.proto.pluginregistration_v1_pb2 import InfoRequest, PluginInfo

METHOD = "/pluginregistration.Registration/GetInfo"
STREAM = "/pluginregistration.Registration/Infos"


def info(_request: Any, context: Any) -> PluginInfo:
    return PluginInfo(type="DRAPlugin", name="gpu.example.com")


def infos(request: Any, context: Any) -> Iterator[PluginInfo]:
    yield from (PluginInfo(name=str(number)) for number in range(2))
    context.abort(grpc.StatusCode.ABORTED, "enough")


@pytest.fixture
def channel(socket_dir: Path) -> Iterator[Channel]:
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        serialize, read = PluginInfo.SerializeToString, InfoRequest.FromString
        unary = grpc.unary_unary_rpc_method_handler(info, request_deserializer=read, response_serializer=serialize)
        many = grpc.unary_stream_rpc_method_handler(infos, request_deserializer=read, response_serializer=serialize)
        methods = {"GetInfo": unary, "Infos": many}
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("pluginregistration.Registration", methods),)
        )
        server.add_insecure_port(f"unix:{socket_dir}/s")
        server.start()
        made = Channel(socket_dir / "s", Recorder())
        yield made
        made.close()
        server.stop(0).wait()


def test_an_answer_and_its_record(channel: Channel) -> None:
    answer = channel.call(METHOD, InfoRequest(), PluginInfo, 5)
    assert answer.ok
    assert answer.status == "OK"
    assert answer.message
    assert answer.message.name == "gpu.example.com"
    (exchange,) = channel._recorder.take()
    assert exchange.method == "GetInfo"
    assert exchange.answer == {"type": "DRAPlugin", "name": "gpu.example.com"}


def test_an_error_is_an_answer(channel: Channel) -> None:
    answer = channel.raw("/no.Such/Method", b"\x01\x02", PluginInfo, 5)
    assert not answer.ok
    assert answer.status.startswith("UNIMPLEMENTED: ")
    assert answer.message is None
    (exchange,) = channel._recorder.take()
    assert exchange.request == {"bytes": "0102"}
    assert exchange.answer == answer.status


def test_nobody_there(socket_dir: Path) -> None:
    channel = Channel(socket_dir / "absent", Recorder())
    assert channel.call(METHOD, InfoRequest(), PluginInfo, 5).code is grpc.StatusCode.UNAVAILABLE
    channel.close()


def test_a_stream_tells_how_it_ended(channel: Channel) -> None:
    stream = channel.stream(STREAM, InfoRequest(), PluginInfo, 5)
    assert [each.name for each in stream] == ["0", "1"]
    assert stream.code is grpc.StatusCode.ABORTED
    assert [each.answer for each in channel._recorder.take()][-1] == "ABORTED: enough"
