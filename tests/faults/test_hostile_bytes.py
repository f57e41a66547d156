"""Clients that speak no gRPC, half of it, or stop in the middle: others are served all the same."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from threading import Event

import pytest

from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.wire.proto import dra_v1_pb2
from tests.faults.site import Inside

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
HUGE_FRAME = b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"
HEADERS_WITHOUT_END = b"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x88"
BYTES = {
    "nothing": b"",
    "zeros": bytes(1000),
    "HTTP/1.1": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP/1.1 without an end": b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\nx",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "half a preface": PREFACE[:10],
    "a preface": PREFACE,
    "settings again and again": PREFACE + SETTINGS * 1000,
    "a frame that is too large": PREFACE + SETTINGS + HUGE_FRAME + bytes(1000),
    "headers without an end": PREFACE + SETTINGS + HEADERS_WITHOUT_END,
    "noise": Random(1).randbytes(100_000),
    "noise behind a preface": PREFACE + SETTINGS + Random(2).randbytes(100_000),
}
MANY = 100


@pytest.fixture(params=["registration", "service"])
def path(request: pytest.FixtureRequest, site: Inside) -> Path:
    return Path(getattr(site.process.paths, request.param))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connect(stack: ExitStack, path: Path, content: bytes) -> socket.socket:
    client = stack.enter_context(socket.socket(socket.AF_UNIX))
    client.settimeout(LONG)
    client.connect(str(path))
    with suppress(ConnectionError):  # it need not listen to the end
        client.sendall(content)
    return client


def assert_served(site: Inside, path: Path) -> None:
    """Others, while these are still there."""
    if path == site.process.paths.registration:
        site.cluster.kubelet.restart()
        site.wait_registered()
    site.assert_sound()


@pytest.mark.parametrize("kind", BYTES)
def test_bytes_that_are_no_call(site: Inside, path: Path, stack: ExitStack, kind: str) -> None:
    for _ in range(3):
        connect(stack, path, BYTES[kind]).shutdown(socket.SHUT_WR)
        connect(stack, path, BYTES[kind])
    assert_served(site, path)


def test_many_that_only_connect(site: Inside, path: Path, stack: ExitStack) -> None:
    kinds = list(BYTES.values())
    for number in range(MANY):
        connect(stack, path, kinds[number % len(kinds)])
    assert_served(site, path)


def test_many_that_come_and_go(site: Inside, path: Path) -> None:
    for number in range(MANY):
        with ExitStack() as stack:
            connect(stack, path, PREFACE[: number % len(PREFACE)])
    assert_served(site, path)


def test_a_kubelet_that_hangs_up_in_the_middle_of_a_call(site: Inside) -> None:
    ref = site.claim("lamp-0", "lamp-1")
    entered, leave = Event(), Event()

    def step(name: str) -> None:
        if name == "prepare: on":
            entered.set()
            assert leave.wait(LONG)

    site.driver.step = step
    with site.calls() as calls:
        prepare = calls.channel.unary_unary("/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources")
        claim = dra_v1_pb2.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid)
        call = prepare.future(dra_v1_pb2.NodePrepareResourcesRequest(claims=[claim]).SerializeToString(), timeout=LONG)
        assert entered.wait(LONG)
        call.cancel()
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(site.prepare, ref)
        wait(lambda: site.process.locks.waiting)
        assert site.driver.prepared.count(ref.uid) == 1
        leave.set()
        again.result(LONG)
    assert site.driver.prepared.count(ref.uid) == 1
    site.assert_held(ref)
    site.unprepare(ref)
