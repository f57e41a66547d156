"""gRPC calls to one socket of a driver: nothing is raised, every outcome is an answer, and all of it is recorded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from dra_sdk.tools.conformance.evidence import Exchange, Recorder

M = TypeVar("M", bound=Message)
OK = grpc.StatusCode.OK
_MIB_16 = 16 * 1024 * 1024
_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # a channel of ours is a connection of ours
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", _MIB_16),  # as the kubelet's
]


@dataclass(frozen=True)
class Answer(Generic[M]):
    """What became of a call: the status, and the message where it is OK."""

    code: grpc.StatusCode
    details: str
    message: M | None
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the call succeeded as a whole."""
        return self.code is OK

    @property
    def status(self) -> str:
        """One line that says how it went."""
        return "OK" if self.ok else f"{self.code.name}: {self.details}"


class Channel:
    """One connection to a unix socket, made with the first call."""

    def __init__(self, socket: Path, recorder: Recorder) -> None:
        self.socket = socket
        self._recorder = recorder
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS)

    def close(self) -> None:
        """Close the connection; calls under way are cut off."""
        self._channel.close()

    def call(self, method: str, request: Message, response: type[M], timeout: float) -> Answer[M]:
        """A unary call; `method` is the full path such as `/pluginregistration.Registration/GetInfo`."""
        answer = self._call(method, request.SerializeToString(), response, timeout)
        self._record(method, to_json(request), answer)
        return answer

    def raw(self, method: str, request: bytes, response: type[M], timeout: float) -> Answer[M]:
        """A unary call with bytes of one's own choice."""
        answer = self._call(method, request, response, timeout)
        self._record(method, {"bytes": request[:200].hex()}, answer)
        return answer

    def stream(self, method: str, request: Message, response: type[M], timeout: float) -> Stream[M]:
        """Open a server stream that ends after `timeout` seconds."""
        call = self._channel.unary_stream(
            method, request_serializer=_serialized, response_deserializer=response.FromString
        )
        return Stream(call(request, timeout=timeout), method, self._recorder)

    def _call(self, method: str, request: bytes, response: type[M], timeout: float) -> Answer[M]:
        call = self._channel.unary_unary(
            method, request_serializer=lambda data: data, response_deserializer=response.FromString
        )
        began = time.monotonic()
        try:
            message = call(request, timeout=timeout)
        except grpc.RpcError as error:
            return Answer(error.code(), error.details() or "", None, time.monotonic() - began)
        return Answer(OK, "", message, time.monotonic() - began)

    def _record(self, method: str, request: Any, answer: Answer[M]) -> None:
        shown = answer.status if answer.message is None else to_json(answer.message)
        self._recorder.add(Exchange(method.rpartition("/")[2], request, shown, answer.seconds))


class Stream(Generic[M]):
    """A server stream: iterate it; `code` tells how it ended once iteration has."""

    def __init__(self, call: Any, method: str, recorder: Recorder) -> None:
        self._call = call
        self._method = method.rpartition("/")[2]
        self._recorder = recorder
        self.code: grpc.StatusCode | None = None

    def __iter__(self) -> Iterator[M]:
        began = time.monotonic()
        try:
            for message in self._call:
                self._recorder.add(Exchange(self._method, {}, to_json(message), time.monotonic() - began))
                yield message
        except grpc.RpcError as error:
            self.code = error.code()
            shown = f"{error.code().name}: {error.details()}"
            self._recorder.add(Exchange(self._method, {}, shown, time.monotonic() - began))
        else:
            self.code = OK

    def cancel(self) -> None:
        """End it from this side."""
        self._call.cancel()


def to_json(message: Message) -> Any:
    """A message by the names of its .proto file."""
    return MessageToDict(message, preserving_proto_field_name=True)


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()
