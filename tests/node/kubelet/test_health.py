from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
import pytest

from dra_sdk import HeldDevice
from dra_sdk.model.status import DeviceHealth, HealthStatus
from dra_sdk.node.health.feed import HealthFeed
from dra_sdk.node.kubelet import health
from dra_sdk.node.kubelet.draplugin import plugin_services
from dra_sdk.node.kubelet.health import HEALTH_VERSIONS, health_services
from dra_sdk.rpc.server import SocketServer
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.wire.proto import dra_v1_pb2

PREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
V1, V1ALPHA1 = HEALTH_VERSIONS
THREADS = 4


def healthy(*names):
    return [DeviceHealth(name, HealthStatus.HEALTHY) for name in names]


class Streams:
    """Counts the streams that are open: each of them holds a thread of the server."""

    def __init__(self, feed):
        self.feed = feed
        self.open = 0
        self.lock = threading.Lock()

    def follow(self, version, is_open):
        with self.lock:
            self.open += 1
        try:
            yield from self.feed.follow(version, is_open)
        finally:
            with self.lock:
                self.open -= 1


def no_threads():
    """Whether all threads of the test's servers have ended."""
    return not any(thread.name.startswith("test-health") for thread in threading.enumerate())


@pytest.fixture
def feed():
    return HealthFeed("lights.example.com", "node-a")


@pytest.fixture
def path(socket_dir):
    return socket_dir / "dra.sock"


@dataclass
class Site:
    server: SocketServer
    streams: Streams


@contextmanager
def serving(path, feed, threads=THREADS):
    services = plugin_services(lambda ref, _: [HeldDevice("r", "node-a", ref.name)], lambda ref, _: None)
    streams = Streams(feed)
    if feed is not None:
        services |= health_services(streams.follow, feed.wake)
    server = SocketServer("test-health", path, services, threads)
    server.start()
    try:
        yield Site(server, streams)
    finally:
        server.stop()
        wait(no_threads)


@contextmanager
def dialling(path, *options):
    with grpc.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1), *options]) as channel:
        yield channel


def watch(channel, version=V1):
    wire = HEALTH_VERSIONS[version][1]
    call = channel.unary_stream(
        f"/{version}/NodeWatchResources",
        request_serializer=wire.NodeWatchResourcesRequest.SerializeToString,
        response_deserializer=wire.NodeWatchResourcesResponse.FromString,
    )
    return call(wire.NodeWatchResourcesRequest(), timeout=LONG)


def prepare(channel, name="claim"):
    call = channel.unary_unary(
        PREPARE,
        request_serializer=dra_v1_pb2.NodePrepareResourcesRequest.SerializeToString,
        response_deserializer=dra_v1_pb2.NodePrepareResourcesResponse.FromString,
    )
    claim = dra_v1_pb2.Claim(namespace="default", uid="u1", name=name)
    return (
        call(dra_v1_pb2.NodePrepareResourcesRequest(claims=[claim]), timeout=LONG).claims["u1"].devices[0].device_name
    )


def names(message):
    return [device.device.device_name for device in message.devices]


def test_both_versions_are_advertised_newest_first():
    assert list(HEALTH_VERSIONS) == ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"]


@pytest.mark.parametrize("version", [V1, V1ALPHA1])
def test_every_field_reaches_the_kubelet(path, feed, version, monkeypatch):
    monkeypatch.setattr(health, "time", lambda: 1_700_000_000.9)
    feed.report([DeviceHealth("lamp-0", HealthStatus.UNHEALTHY, "hot", "other-pool", 45)])
    with serving(path, feed), dialling(path) as channel:
        stream = watch(channel, version)
        (device,) = next(stream).devices
        stream.cancel()
    assert (device.device.pool_name, device.device.device_name) == ("other-pool", "lamp-0")
    assert (device.health, device.message) == (2, "hot")
    assert (device.last_updated_time, device.health_check_timeout_seconds) == (1_700_000_000, 45)


def test_changes_and_repetitions_are_pushed_as_they_are_reported(path, feed):
    with serving(path, feed), dialling(path) as channel:
        feed.report(healthy("lamp-0", "lamp-1"))
        stream = watch(channel)
        assert names(next(stream)) == ["lamp-0", "lamp-1"]
        for status in (HealthStatus.UNHEALTHY, HealthStatus.UNHEALTHY, HealthStatus.HEALTHY):
            feed.report([DeviceHealth("lamp-1", status)])
            (device,) = next(stream).devices
            assert (device.device.device_name, device.health) == ("lamp-1", status)
        stream.cancel()


def test_a_reopened_stream_and_a_restarted_service_begin_with_everything(path, feed):
    feed.report(healthy("lamp-0", "lamp-1"))
    for _restart in range(2):
        with serving(path, feed):
            for _reconnect in range(2):
                with dialling(path) as channel:
                    assert names(next(watch(channel))) == ["lamp-0", "lamp-1"]


def test_a_long_list_is_split_into_messages_that_a_client_accepts(path, feed):
    long = "x" * 1024
    feed.report([DeviceHealth(f"lamp-{n}", HealthStatus.HEALTHY, long) for n in range(2500)])
    with serving(path, feed), dialling(path) as channel:
        stream = watch(channel)
        messages = [next(stream) for _ in range(3)]
        stream.cancel()
    assert [len(each.devices) for each in messages] == [1000, 1000, 500]
    assert len({name for each in messages for name in names(each)}) == 2500


def test_a_client_that_hangs_up_frees_its_thread(path, feed):
    feed.report(healthy("lamp-0"))
    with serving(path, feed) as site, dialling(path) as channel:
        stream = watch(channel)
        next(stream)
        assert site.streams.open == 1
        stream.cancel()
        wait(lambda: site.streams.open == 0)


def test_a_client_whose_connection_breaks_frees_its_thread(path, feed):
    feed.report(healthy("lamp-0"))
    with serving(path, feed) as site:
        with dialling(path) as channel:
            next(watch(channel))
            assert site.streams.open == 1
        wait(lambda: site.streams.open == 0)


def test_a_newer_stream_ends_the_older_one_of_its_version_only(path, feed):
    feed.report(healthy("lamp-0"))
    with serving(path, feed) as site, dialling(path) as channel:
        older, other = watch(channel), watch(channel, V1ALPHA1)
        next(older), next(other)
        newer = watch(channel)
        next(newer)
        with pytest.raises((StopIteration, grpc.RpcError)):
            next(older)
        wait(lambda: site.streams.open == 2)
        feed.report(healthy("lamp-0"))
        assert names(next(newer)) == names(next(other)) == ["lamp-0"]
        newer.cancel()
        other.cancel()


@pytest.mark.parametrize("version", [V1, V1ALPHA1])
def test_prepare_is_answered_while_fifty_streams_were_opened_and_abandoned(path, feed, version):
    feed.report(healthy("lamp-0"))
    with serving(path, feed) as site, dialling(path) as channel:
        watches = [watch(channel, version) for _ in range(50)]  # neither read nor cancelled
        for attempt in range(5):
            assert prepare(channel, f"claim-{attempt}") == f"claim-{attempt}"
        wait(lambda: site.streams.open <= 1)
        for stream in watches:
            stream.cancel()


def test_streams_that_nobody_reads_are_cut_off_in_the_middle_of_sending(path, feed):
    """The second message is more than the client's window, so the server cannot finish to send it."""
    feed.report([DeviceHealth(f"lamp-{n}", HealthStatus.HEALTHY, "x" * 1024) for n in range(3000)])
    with serving(path, feed) as site, dialling(path, ("grpc.http2.bdp_probe", 0)) as channel:
        watches = []
        for _ in range(12):
            watches.append(watch(channel))
            next(watches[-1])  # it has begun, and stays stuck with the next message
        assert prepare(channel) == "claim"
        wait(lambda: site.streams.open <= 1)
        for stream in watches:
            stream.cancel()


def test_prepares_run_beside_open_streams_of_both_versions(path, feed):
    feed.report(healthy("lamp-0"))
    with serving(path, feed), dialling(path) as channel:
        streams = [watch(channel, version) for version in HEALTH_VERSIONS]
        for stream in streams:
            next(stream)
        answers = []
        threads = [threading.Thread(target=lambda n=n: answers.append(prepare(channel, f"c{n}"))) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        feed.report(healthy("lamp-0"))
        assert [names(next(stream)) for stream in streams] == [["lamp-0"], ["lamp-0"]]
        assert sorted(answers) == ["c0", "c1", "c2"]
        for stream in streams:
            stream.cancel()


def test_stopping_the_server_ends_open_streams(path, feed):
    feed.report(healthy("lamp-0"))
    with serving(path, feed) as site, dialling(path) as channel:
        stream = watch(channel)
        next(stream)
        site.server.stop()
        with pytest.raises(grpc.RpcError):
            next(stream)
        wait(no_threads)


def test_closing_the_feed_ends_a_stream_in_good_order(path, feed):
    feed.report(healthy("lamp-0"))
    with serving(path, feed), dialling(path) as channel:
        stream = watch(channel)
        next(stream)
        feed.close()
        with pytest.raises(StopIteration):
            next(stream)
        assert stream.code() is grpc.StatusCode.OK


@pytest.mark.parametrize("version", [V1, V1ALPHA1])
def test_without_a_health_hook_the_service_is_unimplemented(path, version):
    with serving(path, None), dialling(path) as channel:
        with pytest.raises(grpc.RpcError) as error:
            next(watch(channel, version))
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert prepare(channel) == "claim"
