from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from dra_sdk.errors import ApiError, GoneError, UnreachableError
from dra_sdk.kube import paths
from dra_sdk.kube.client import KubeClient
from dra_sdk.kube.watching import Watch
from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.server import ApiServer, make_certificates
from tests.kube.scripted import Answer, Asked


def line(kind: str, **item: object) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def test_events_arrive_as_they_happen(serve, connect):
    seen = threading.Semaphore(0)

    def events() -> Iterator[bytes]:
        yield line("ADDED", name="a")
        assert seen.acquire(timeout=LONG)  # the first is delivered before the second exists
        yield line("BOOKMARK", v="9") + line("MODIFIED", name="ä")[:12]
        yield line("MODIFIED", name="ä")[12:]

    server = serve(lambda _: Answer(stream=events()))
    got = []
    with closing(connect(server.url).watch("/c", {"fieldSelector": "f"}, resource_version="5")) as watch:
        for event in watch:
            got.append((event["type"], event["object"]))
            seen.release()
    assert got == [("ADDED", {"name": "a"}), ("BOOKMARK", {"v": "9"}), ("MODIFIED", {"name": "ä"})]
    query = server.asked[0].query
    assert 48 <= int(query.pop("timeoutSeconds")) <= 72
    assert query == {"fieldSelector": "f", "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "5"}


def test_close_wakes_the_reader(serve, connect):
    release, got = threading.Event(), threading.Event()

    def events() -> Iterator[bytes]:
        yield line("ADDED")
        release.wait(LONG)

    server = serve(lambda _: Answer(stream=events()))
    watch = connect(server.url).watch("/c", resource_version="1")
    seen = []

    def read() -> None:
        for event in watch:
            seen.append(event)
            got.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert got.wait(LONG)
    watch.close()
    watch.close()
    reader.join(LONG)
    assert not reader.is_alive()
    release.set()
    assert len(seen) == 1


def test_close_after_the_server_has_ended_the_watch(serve, connect):
    server = serve(lambda _: Answer(stream=[line("ADDED")]))
    watch = connect(server.url).watch("/c", resource_version="1")
    for _ in watch:
        watch.close()
    assert list(watch) == []


def test_close_after_a_reset(connect):
    """As at the end of a node, when the driver and its API server stop together."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        watching = threading.Thread(target=lambda: seen.append(connect(url).watch("/c", resource_version="1")))
        seen: list[Watch] = []
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        watching.start()
        with listener.accept()[0] as server:
            server.recv(65536)
            event = line("ADDED")
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            server.sendall(head + b"%x\r\n%s\r\n" % (len(event), event))
            watching.join()
            for _ in seen[0]:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                server.close()
                seen[0].close()


def test_close_before_reading(serve, connect):
    release = threading.Event()
    server = serve(lambda _: Answer(stream=iter(lambda: release.wait(LONG) and b"", b"")))
    watch = connect(server.url).watch("/c", resource_version="1")
    watch.close()
    assert list(watch) == []
    release.set()


def test_an_expired_version_before_and_during_the_watch(serve, connect):
    gone = {"code": 410, "reason": "Expired", "message": "too old resource version"}
    server = serve(lambda asked: Answer(gone, 410) if asked.path == "/a" else Answer(stream=[line("ERROR", **gone)]))
    client = connect(server.url)
    with pytest.raises(GoneError, match=r"watch /a: .*too old"):
        client.watch("/a", resource_version="1")
    with pytest.raises(GoneError, match=r"watch /b: .*too old"):
        list(client.watch("/b", resource_version="1"))


def test_an_error_event_of_another_kind(serve, connect):
    server = serve(lambda _: Answer(stream=[line("ERROR", code=500, message="etcd is away")]))
    with pytest.raises(ApiError, match="500 Internal Server Error: etcd is away"):
        list(connect(server.url).watch("/c", resource_version="1"))


def broken(asked: Asked) -> Iterator[bytes]:
    yield line("ADDED")
    if asked.path == "/half":
        yield b'{"type": "ADD'
        return
    if asked.path == "/junk":
        yield b"<html>\n"
        return
    raise ConnectionAbortedError


@pytest.mark.parametrize("path", ["/torn", "/half", "/junk"])
def test_a_watch_that_breaks_off(serve, connect, path: str):
    server = serve(lambda asked: Answer(stream=broken(asked)))
    got = []
    with pytest.raises(UnreachableError, match=f"watch {path}: "):
        got.extend(connect(server.url).watch(path, resource_version="1"))


@pytest.mark.parametrize("secure", [False, True])
def test_against_a_server_that_is_real_enough(tmp_path, secure: bool):
    """Over TLS too, a quiet watch ends at once when it is closed."""
    store = ObjectStore()
    tls = make_certificates(tmp_path) if secure else None
    with ApiServer(store, tls=tls, token="t") as server:
        client = KubeClient.connect(server.write_kubeconfig(tmp_path / "config"))
        version = client.list(paths.resource_slices())["metadata"]["resourceVersion"]
        client.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        watch = client.watch("/api/v1/nodes", resource_version=version)
        got: list[str] = []
        seen = threading.Event()

        def read() -> None:
            for event in watch:
                got.append(event["type"])
                seen.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert seen.wait(LONG)
        watch.close()
        reader.join(LONG)
        assert not reader.is_alive()
        assert got == ["ADDED"]
        client.close()
