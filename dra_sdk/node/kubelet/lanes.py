"""Calls that are answered by the very thread that takes them from gRPC.

A server of grpcio has one thread that takes what arrives. It hands each call to a thread of a pool, which has it wait
for the request, and wakes it again: a twentieth of a prepare's time, a fifth of its processor time. Here a thread waits
for the calls of one method on a completion queue of its own, reads, answers, and waits again. The server is grpcio's
own and serves all other methods as ever, but this way leads through `cygrpc`, the module it is built on, which is not
public. So where that is not what it was, there are no lanes, and the server serves these methods as well.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import grpc

    from dra_sdk.node.kubelet.calls import OpenCalls
    from dra_sdk.node.kubelet.server import Method

log = logging.getLogger(__name__)
SERVICES: Final = frozenset({"k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"})
"""What a kubelet calls while a pod waits; those older than 1.34 call v1beta1, which goes the ordinary way."""
SPARE: Final = 2  # threads that wait for calls of a method; each wakes five times a second, as grpcio's own does
_NO_FLAGS: Final = 0
_PARTS: Final = (
    "CompletionQueue", "ReceiveCloseOnServerOperation", "ReceiveMessageOperation", "SendInitialMetadataOperation",
    "SendMessageOperation", "SendStatusFromServerOperation", "StatusCode",
)  # fmt: skip


def open_lanes(
    server: grpc.Server, services: Mapping[str, Mapping[str, Method]], name: str, most: int, under_way: OpenCalls
) -> list[Lane]:
    """A lane for each method of SERVICES that the server has; to be asked for before it starts.

    Each has at most so many threads, whose names begin with `name`; `under_way` counts its calls.
    """
    methods = {
        f"/{each}/{path}": found for each in SERVICES & services.keys() for path, found in services[each].items()
    }
    try:
        from grpc._cython import cygrpc  # type: ignore[attr-defined]  # noqa: PLC0415 (may fail)

        for part in _PARTS:
            getattr(cygrpc, part)
        core = server._state.server  # type: ignore[attr-defined]  # noqa: SLF001
        calls = [_Calls(cygrpc, core, path, method) for path, method in methods.items()]
        return [Lane(each, name, most, under_way) for each in calls]
    except (ImportError, AttributeError, TypeError) as error:
        log.info("calls take grpcio's ordinary way, which is slower: %s", error)
        return []


class Lane:
    """The threads that answer the calls of one method, one call each at a time."""

    def __init__(self, calls: _Calls, name: str, most: int, under_way: OpenCalls) -> None:
        self._calls, self._under_way = calls, under_way
        self._name = f"{name}-{calls.path.rpartition('/')[2]}"
        self._lock = Lock()
        self._waiting = 0
        self._stopped = False
        self._free = [calls.queue() for _ in range(most)]
        calls.register()

    def start(self) -> None:
        """Wait for calls; the server has been started."""
        self._start_thread(self._free.pop())

    def stop(self) -> None:
        """Take no new calls; to be called before the server is stopped, which ends the waiting."""
        with self._lock:
            self._stopped = True

    def _start_thread(self, queue: Any) -> None:
        Thread(target=self._run, args=(queue,), name=self._name, daemon=True).start()

    def _run(self, queue: Any) -> None:
        while self._begin_waiting(queue):
            call = self._calls.next(queue)
            self._end_waiting(busy=call is not None)
            if call is None:
                return
            with self._under_way:
                self._calls.answer(call, queue)
            del call  # it must be gone before the next wait, or gRPC spins

    def _begin_waiting(self, queue: Any) -> bool:
        """False where enough threads wait, or none is to: then this one ends."""
        with self._lock:
            if self._stopped or self._waiting >= SPARE:
                self._free.append(queue)
                return False
            self._calls.request(queue)  # with the lock, for it would crash once the server is gone
            self._waiting += 1
            return True

    def _end_waiting(self, *, busy: bool) -> None:
        """Where none waits any more while this thread is busy, another one begins."""
        with self._lock:
            self._waiting -= 1
            queue = self._free.pop() if busy and not self._waiting and self._free else None
        if queue is not None:
            self._start_spare(queue)

    def _start_spare(self, queue: Any) -> None:
        """Have somebody wait while this thread is busy; without, the next call waits until it is free again."""
        try:
            self._start_thread(queue)
        except RuntimeError as error:  # the machine gives no more threads
            log.warning("%s: %s", self._calls.path, error)
            with self._lock:
                self._free.append(queue)


class _Calls:
    """The calls of one unary method as the inner parts of grpcio have them."""

    def __init__(self, grpc: Any, core: Any, path: str, method: Any) -> None:
        self.path = path
        self._grpc, self._core, self._method = grpc, core, method

    def queue(self) -> Any:
        """A completion queue, for one thread."""
        queue = self._grpc.CompletionQueue()
        self._core.register_completion_queue(queue)
        return queue

    def register(self) -> None:
        """Have gRPC keep these calls for us."""
        self._core.register_method(self.path)

    def request(self, queue: Any) -> None:
        """Ask for the next call, which `next` waits for."""
        self._core.request_registered_call(queue, queue, self.path, None)

    def next(self, queue: Any) -> Any:
        """Wait for the call that was asked for; None when the server stops."""
        event = queue.poll()
        return event.call if event.success else None

    def answer(self, call: Any, queue: Any) -> None:
        """Read the request, answer it, and wait until that is sent or the client has left."""
        grpc = self._grpc
        try:
            received = self._do(call, queue, grpc.ReceiveMessageOperation(_NO_FLAGS))
            code, details, answer = self._reply(received.batch_operations[0].message())
            self._do(
                call,
                queue,
                grpc.SendInitialMetadataOperation(None, _NO_FLAGS),
                *([] if answer is None else [grpc.SendMessageOperation(answer, _NO_FLAGS)]),
                grpc.SendStatusFromServerOperation(None, code, details, _NO_FLAGS),
                grpc.ReceiveCloseOnServerOperation(_NO_FLAGS),
            )
        except Exception:
            log.exception("%s: a call could not be answered", self.path)

    def _reply(self, content: bytes | None) -> tuple[Any, bytes, bytes | None]:
        """Status, details and message, with the words of grpcio's own server."""
        codes, method = self._grpc.StatusCode, self._method
        if content is None:
            return codes.cancelled, b"", None  # the client has left
        try:
            request = method.request_deserializer(content)
        except Exception:
            log.exception("%s: a request that is none", self.path)
            return codes.internal, b"Exception deserializing request!", None
        try:
            return codes.ok, b"", method.response_serializer(method.unary_unary(request, None))
        except Exception as error:
            log.exception("%s failed", self.path)
            return codes.unknown, f"Exception calling application: {error}".encode(errors="replace"), None

    @staticmethod
    def _do(call: Any, queue: Any, *operations: Any) -> Any:
        """Carry out operations of a call; what came of them. Its thread's queue has nothing else to tell meanwhile."""
        call.start_server_batch(operations, None)
        return queue.poll()
