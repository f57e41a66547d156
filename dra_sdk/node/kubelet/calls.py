"""The calls of a server that were taken and are not yet answered: at shutdown they are waited for.

A call is more than the work on its claims: one may name several, and its answer is yet to be sent when the last of them
is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Condition
from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from dra_sdk.node.kubelet.server import Method


class OpenCalls:
    """Counts them; inside a `with` one more is open. Safe for threads."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._open = 0

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self) -> None:
        """One more is open."""
        with self._changed:
            self._open += 1

    def end(self) -> None:
        """One has ended."""
        with self._changed:
            self._open -= 1
            if not self._open:
                self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait up to so many seconds until none is open; whether that came true."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, seconds)


def counted(methods: Mapping[str, Method], calls: OpenCalls) -> dict[str, Method]:
    """The same methods, whose calls are counted; but not streams, which last as long as their client."""
    return {name: _counted(method, calls) if method.unary_unary else method for name, method in methods.items()}


def _counted(method: Method, calls: OpenCalls) -> Method:
    answer = method.unary_unary
    assert answer is not None

    def behaviour(request: Any, context: grpc.ServicerContext) -> Any:
        calls.begin()
        if not context.add_callback(calls.end):  # it is told when the answer was sent, or the client has left
            calls.end()
        with calls:  # whose client has left may still be at work
            return answer(request, context)

    return grpc.unary_unary_rpc_method_handler(behaviour, method.request_deserializer, method.response_serializer)
