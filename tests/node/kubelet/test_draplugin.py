"""DRAPlugin v1 and v1beta1 over real sockets: exactly one answer for each claim, whatever happens to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import grpc
import pytest

from dra_sdk import HeldDevice
from dra_sdk.errors import HookError, PermanentError, StateError
from dra_sdk.model.claim import ClaimRef, Deadline
from dra_sdk.node.files import claim_lock
from dra_sdk.node.kubelet.draplugin import ERROR_LIMIT, VERSIONS, plugin_services
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.wire.proto import dra_v1_pb2, dra_v1beta1_pb2
from tests.node.kubelet.conftest import Dial, Serve, begin, call
from tests.node.prepare.world import POOL, World

DEVICE = HeldDevice("r/big", "pool", "gpu-0", "s-1", cdi_ids=("example.com/gpu=a", "example.com/gpu=b"))


class Kubelet:
    """The kubelet's client for one version of the API."""

    def __init__(self, channel: grpc.Channel, version: str) -> None:
        self.channel = channel
        self.service, self.wire = VERSIONS[version]

    def prepare(self, *uids: str) -> dict[str, Any]:
        request = self.wire.NodePrepareResourcesRequest(claims=[self.claim(uid) for uid in uids])
        answer = self.send("NodePrepareResources", request, self.wire.NodePrepareResourcesResponse)
        return dict(answer.claims)

    def unprepare(self, *uids: str) -> dict[str, str]:
        request = self.wire.NodeUnprepareResourcesRequest(claims=[self.claim(uid) for uid in uids])
        answer = self.send("NodeUnprepareResources", request, self.wire.NodeUnprepareResourcesResponse)
        return {uid: entry.error for uid, entry in answer.claims.items()}

    def claim(self, uid: str) -> Any:
        return self.wire.Claim(namespace="default", name=f"claim-{uid}", uid=uid)

    def send(self, method: str, request: Any, response: Any) -> Any:
        return call(self.channel, f"/{self.service}/{method}", request, response)


Connect = Callable[..., Kubelet]


@pytest.fixture(params=["v1.DRAPlugin", "v1beta1.DRAPlugin"])
def connect(request: pytest.FixtureRequest, serve: Serve, dial: Dial) -> Connect:
    """Serves two functions and connects a kubelet that speaks one version."""

    def start(prepare: Any = lambda _ref, _deadline: [], unprepare: Any = lambda _ref, _deadline: None) -> Kubelet:
        return Kubelet(dial(serve(plugin_services(prepare, unprepare)).path), request.param)

    return start


def test_versions_are_advertised_newest_first_under_their_wire_names() -> None:
    assert list(VERSIONS) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
    assert VERSIONS["v1.DRAPlugin"] == ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", dra_v1_pb2)
    assert VERSIONS["v1beta1.DRAPlugin"] == ("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", dra_v1beta1_pb2)


def test_a_device_is_answered_with_all_its_fields(connect: Connect) -> None:
    seen: list[ClaimRef] = []

    def prepare(ref: ClaimRef, _deadline: Deadline) -> list[HeldDevice]:
        seen.append(ref)
        return [DEVICE, HeldDevice("s", "pool", "gpu-1")]

    kubelet = connect(prepare)
    entry = kubelet.prepare("u-1")["u-1"]
    assert seen == [ClaimRef("default", "claim-u-1", "u-1")]
    assert entry.error == ""
    first, second = entry.devices
    assert (list(first.request_names), first.pool_name, first.device_name) == (["r"], "pool", "gpu-0")
    assert list(first.cdi_device_ids) == ["example.com/gpu=a", "example.com/gpu=b"]
    assert list(second.cdi_device_ids) == []
    if kubelet.wire is dra_v1_pb2:
        assert first.share_id == "s-1"
        assert not second.HasField("share_id")
    else:
        assert "share_id" not in kubelet.wire.Device.DESCRIPTOR.fields_by_name


def test_every_claim_has_exactly_one_entry_and_a_bad_one_fails_alone(connect: Connect) -> None:
    def prepare(ref: ClaimRef, _deadline: Deadline) -> list[HeldDevice]:
        if ref.uid == "bad":
            raise PermanentError("no such lamp")
        return [] if ref.uid == "empty" else [DEVICE]

    def unprepare(ref: ClaimRef, _deadline: Deadline) -> None:
        if ref.uid == "bad":
            raise HookError("switch is stuck")

    kubelet = connect(prepare, unprepare)
    found = kubelet.prepare("u-1", "bad", "empty", "u-2")
    assert {uid: (len(entry.devices), entry.error) for uid, entry in found.items()} == {
        "u-1": (1, ""),
        "bad": (0, "prepare claim default/claim-bad (bad): no such lamp"),
        "empty": (0, ""),
        "u-2": (1, ""),
    }
    assert kubelet.unprepare("u-1", "bad", "u-2") == {
        "u-1": "",
        "bad": "unprepare claim default/claim-bad (bad): switch is stuck",
        "u-2": "",
    }


def test_a_claim_that_is_named_twice_is_prepared_once(connect: Connect) -> None:
    calls: list[str] = []

    def prepare(ref: ClaimRef, _deadline: Deadline) -> list[HeldDevice]:
        calls.append(ref.uid)
        return [DEVICE]

    kubelet = connect(prepare, lambda ref, _: calls.append(ref.uid))
    assert len(kubelet.prepare("u-1", "u-1")["u-1"].devices) == 1
    assert kubelet.unprepare("u-1", "u-1") == {"u-1": ""}
    assert calls == ["u-1", "u-1"]


def test_no_claims_is_a_question_whether_we_live(connect: Connect) -> None:
    kubelet = connect()
    assert kubelet.prepare() == {}
    assert kubelet.unprepare() == {}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermanentError("two\n  lines\tof it"), "two lines of it"),
        (PermanentError(), "PermanentError"),
        (KeyError("x"), "internal error: KeyError: 'x'"),
        (ValueError(), "internal error: ValueError:"),
        (StateError("file /a\udcff.json is damaged"), "file /a\\udcff.json is damaged"),
        (OSError(5, "bus error"), "internal error: OSError: [Errno 5] bus error"),
    ],
    ids=["lines", "empty", "key", "bare", "surrogate", "errno"],
)
def test_an_error_is_one_line_that_can_be_sent(connect: Connect, error: Exception, text: str) -> None:
    def fail(_ref: ClaimRef, _deadline: Deadline) -> Any:
        raise error

    kubelet = connect(fail, fail)
    assert kubelet.prepare("u-1")["u-1"].error == f"prepare claim default/claim-u-1 (u-1): {text}"
    assert kubelet.unprepare("u-1")["u-1"] == f"unprepare claim default/claim-u-1 (u-1): {text}"


def test_notes_belong_to_the_error(connect: Connect) -> None:
    def fail(_ref: ClaimRef, _deadline: Deadline) -> Any:
        error = HookError("burnt")
        error.add_note("undoing it failed as well: stuck")
        raise error

    assert connect(fail).prepare("u-1")["u-1"].error.endswith("burnt; undoing it failed as well: stuck")


def test_an_endless_error_is_cut(connect: Connect) -> None:
    def fail(_ref: ClaimRef, _deadline: Deadline) -> Any:
        raise HookError("x" * 10_000_000)

    text = connect(fail).prepare("u-1")["u-1"].error
    assert len(text) == len("prepare ") + ERROR_LIMIT
    assert text.endswith("x…")


@pytest.mark.parametrize("answer", [None, 7, ["device"], [DEVICE, HeldDevice("r", "pool", "gpu\udcff")]])
def test_an_answer_that_cannot_be_sent_is_that_claims_error(connect: Connect, answer: Any) -> None:
    kubelet = connect(lambda ref, _: answer if ref.uid == "bad" else [DEVICE])
    found = kubelet.prepare("bad", "u-1")
    assert found["bad"].error.startswith("prepare claim default/claim-bad (bad): internal error: ")
    assert list(found["bad"].devices) == []
    assert len(found["u-1"].devices) == 1


def test_an_expected_error_is_one_line_and_a_surprise_a_traceback(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    errors: dict[str, Exception] = {"u-1": PermanentError("expected"), "u-2": KeyError("surprise")}

    def fail(ref: ClaimRef, _deadline: Deadline) -> Any:
        raise errors[ref.uid]

    with caplog.at_level(logging.ERROR):
        connect(fail).prepare("u-1", "u-2")
    first, second = caplog.records
    assert first.exc_info is None
    assert first.getMessage() == "cannot prepare claim default/claim-u-1 (u-1): expected"
    assert second.exc_info
    assert second.exc_info[1] is errors["u-2"]


# --- with the engine behind it


def test_the_kubelets_calls_reach_the_hardware(connect: Connect, world: World) -> None:
    preparer = world.preparer()
    kubelet = connect(preparer.prepare, preparer.unprepare)
    world.claim("u-1", ("r/sub", "lamp-0"))
    world.claim("u-2", "lamp-0")
    found = kubelet.prepare("u-1", "u-2", "u-3")
    (device,) = found["u-1"].devices
    assert (list(device.request_names), device.pool_name, device.device_name) == (["r"], POOL, "lamp-0")
    assert "is held by claim default/claim-u-1" in found["u-2"].error
    assert "not found" in found["u-3"].error
    assert world.shining() == {"lamp-0": "u-1"}
    assert kubelet.prepare("u-1") == {"u-1": found["u-1"]}
    assert world.driver.prepared == ["u-1"]
    assert kubelet.unprepare("u-1", "u-2", "u-3") == {"u-1": "", "u-2": "", "u-3": ""}
    assert world.is_clean()


def test_both_versions_speak_of_the_same_claims(world: World, serve: Serve, dial: Dial) -> None:
    preparer = world.preparer()
    path = serve(plugin_services(preparer.prepare, preparer.unprepare)).path
    new, old = (Kubelet(dial(path), version) for version in VERSIONS)
    world.claim("u-1", "lamp-0")
    before = new.prepare("u-1")["u-1"].devices[0]
    after = old.prepare("u-1")["u-1"].devices[0]
    assert before.cdi_device_ids == after.cdi_device_ids
    assert old.unprepare("u-1") == {"u-1": ""}
    assert world.is_clean()


def test_a_call_that_the_kubelet_gave_up_ends_and_answers_the_next(world: World, serve: Serve, dial: Dial) -> None:
    entered, leave = Event(), Event()
    preparer = world.preparer()

    def slow(ref: ClaimRef, _deadline: Deadline) -> list[HeldDevice]:
        entered.set()
        assert leave.wait(LONG)
        return list(preparer.prepare(ref))

    channel = dial(serve(plugin_services(slow, preparer.unprepare)).path)
    wire: ModuleType = dra_v1_pb2
    world.claim("u-1", "lamp-0")
    request = wire.NodePrepareResourcesRequest(claims=[wire.Claim(namespace="default", name="claim-u-1", uid="u-1")])
    method = f"/{VERSIONS['v1.DRAPlugin'][0]}/NodePrepareResources"
    given_up = begin(channel, method, request, wire.NodePrepareResourcesResponse)
    assert entered.wait(LONG)
    given_up.cancel()
    leave.set()
    answer = call(channel, method, request, wire.NodePrepareResourcesResponse)
    assert len(answer.claims["u-1"].devices) == 1
    assert world.driver.prepared == ["u-1"]
    assert Path(world.claims / "u-1.json").exists()


def test_control_characters_of_names_and_keys_reach_no_log_and_no_event(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """An escape sequence in the key of an opaque configuration would move the terminal of whoever reads it."""

    def fail(_ref: ClaimRef, _deadline: Deadline) -> Any:
        raise PermanentError("unknown field \x1b[2J\x07\u202eevil")

    text = connect(fail).prepare("u-1")["u-1"].error
    assert text.endswith("unknown field \\x1b[2J\\x07\\u202eevil")
    assert all(character.isprintable() for character in text + caplog.records[0].getMessage())


def test_a_reference_of_any_length_makes_a_short_answer_and_a_short_log_line(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    uid = "u" * 1_000_000
    kubelet = connect(lambda _ref, _deadline: pytest.fail("such a claim cannot exist"))
    error = kubelet.prepare(uid)[uid].error
    assert len(error) < 5000
    assert len(caplog.records[0].getMessage()) < 5000
    assert "the claim's name must have at most 253 characters" in kubelet.prepare("u" * 250)["u" * 250].error


def test_the_deadline_of_the_call_reaches_the_engine(connect: Connect) -> None:
    seen: list[float] = []

    def prepare(_ref: ClaimRef, deadline: Deadline) -> list[HeldDevice]:
        seen.append(deadline.remaining())
        assert not deadline.is_over
        return [DEVICE]

    connect(prepare).prepare("u-1")
    assert 0 < seen[0] <= LONG + 1  # gRPC rounds


def test_of_many_claims_the_rest_is_not_begun_once_the_kubelet_left(serve: Serve, dial: Dial) -> None:
    begun: list[str] = []
    left = Event()

    def prepare(ref: ClaimRef, deadline: Deadline) -> list[HeldDevice]:
        begun.append(ref.uid)
        wait(lambda: deadline.is_over)
        left.set()
        return [DEVICE]

    server = serve(plugin_services(prepare, lambda _ref, _deadline: None))
    claims = [dra_v1_pb2.Claim(namespace="default", name="c", uid=f"u-{index}") for index in range(10_000)]
    request = dra_v1_pb2.NodePrepareResourcesRequest(claims=claims)
    method = f"/{VERSIONS['v1.DRAPlugin'][0]}/NodePrepareResources"
    given_up = begin(dial(server.path), method, request, dra_v1_pb2.NodePrepareResourcesResponse)
    wait(lambda: begun)
    given_up.cancel()
    assert left.wait(LONG)
    assert server.drain(LONG)
    assert begun == ["u-0"]


@pytest.mark.parametrize("kind", ["prepare", "unprepare"])
def test_a_call_whose_deadline_passes_while_it_waits_does_not_begin(
    world: World, serve: Serve, dial: Dial, kind: str
) -> None:
    """Through the socket, with the kubelet's own deadline. The server notices it later than the kubelet."""
    preparer, seen = world.preparer(), list[Deadline]()

    def prepare(ref: ClaimRef, deadline: Deadline) -> Sequence[HeldDevice]:
        seen.append(deadline)
        return preparer.prepare(ref, deadline)

    def unprepare(ref: ClaimRef, deadline: Deadline) -> None:
        seen.append(deadline)
        preparer.unprepare(ref, deadline)

    server = serve(plugin_services(prepare, unprepare))
    ref = world.claim("u-1", "lamp-0")
    if kind == "unprepare":
        preparer.prepare(ref)
    name = f"Node{kind.capitalize()}Resources"
    claim = dra_v1_pb2.Claim(namespace="default", name=ref.name, uid="u-1")
    request, response = getattr(dra_v1_pb2, f"{name}Request")(claims=[claim]), getattr(dra_v1_pb2, f"{name}Response")
    channel, method, timeout = dial(server.path), f"/{VERSIONS['v1.DRAPlugin'][0]}/{name}", 0.3
    with world.locks[0].hold([claim_lock("u-1")]):
        while not seen:  # a busy server may not have begun with a call that is given up
            with pytest.raises(grpc.RpcError) as caught:
                call(channel, method, request, response, timeout=timeout)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            timeout *= 2
        wait(lambda: all(each.is_over for each in seen))
    assert server.drain(LONG)
    assert world.shining() == ({} if kind == "prepare" else {"lamp-0": "u-1"})
