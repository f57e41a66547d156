"""DRAPlugin v1 and v1beta1 over real sockets: exactly one answer for each claim, whatever happens to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import grpc
import pytest

from dra_sdk.errors import HookError, PermanentError, StateError
from dra_sdk.node.kubelet.plugin import LONGEST, VERSIONS, plugin_services
from dra_sdk.wire.dra import AnsweredDevice, ClaimRef
from dra_sdk.wire.proto import dra_v1_pb2, dra_v1beta1_pb2
from tests.node.kubelet.conftest import Dial, Serve, begin, call
from tests.node.prepare.world import POOL, World
from tests.waiting import LONG

DEVICE = AnsweredDevice("r", "pool", "gpu-0", ("example.com/gpu=a", "example.com/gpu=b"), "s-1")


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

    def start(prepare: Any = lambda _ref: [], unprepare: Any = lambda _ref: None) -> Kubelet:
        return Kubelet(dial(serve(plugin_services(prepare, unprepare)).path), request.param)

    return start


def test_versions_are_advertised_newest_first_under_their_wire_names() -> None:
    assert list(VERSIONS) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
    assert VERSIONS["v1.DRAPlugin"] == ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", dra_v1_pb2)
    assert VERSIONS["v1beta1.DRAPlugin"] == ("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", dra_v1beta1_pb2)


def test_a_device_is_answered_with_all_its_fields(connect: Connect) -> None:
    seen: list[ClaimRef] = []

    def prepare(ref: ClaimRef) -> list[AnsweredDevice]:
        seen.append(ref)
        return [DEVICE, AnsweredDevice("s", "pool", "gpu-1")]

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
    def prepare(ref: ClaimRef) -> list[AnsweredDevice]:
        if ref.uid == "bad":
            raise PermanentError("no such lamp")
        return [] if ref.uid == "empty" else [DEVICE]

    def unprepare(ref: ClaimRef) -> None:
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

    def prepare(ref: ClaimRef) -> list[AnsweredDevice]:
        calls.append(ref.uid)
        return [DEVICE]

    kubelet = connect(prepare, lambda ref: calls.append(ref.uid))
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
    def fail(_ref: ClaimRef) -> Any:
        raise error

    kubelet = connect(fail, fail)
    assert kubelet.prepare("u-1")["u-1"].error == f"prepare claim default/claim-u-1 (u-1): {text}"
    assert kubelet.unprepare("u-1")["u-1"] == f"unprepare claim default/claim-u-1 (u-1): {text}"


def test_notes_belong_to_the_error(connect: Connect) -> None:
    def fail(_ref: ClaimRef) -> Any:
        error = HookError("burnt")
        error.add_note("undoing it failed as well: stuck")
        raise error

    assert connect(fail).prepare("u-1")["u-1"].error.endswith("burnt; undoing it failed as well: stuck")


def test_an_endless_error_is_cut(connect: Connect) -> None:
    def fail(_ref: ClaimRef) -> Any:
        raise HookError("x" * 10_000_000)

    text = connect(fail).prepare("u-1")["u-1"].error
    assert len(text) == LONGEST + 1
    assert text.endswith("x…")


@pytest.mark.parametrize("answer", [None, 7, ["device"], [DEVICE, AnsweredDevice("r", "pool", "gpu\udcff")]])
def test_an_answer_that_cannot_be_sent_is_that_claims_error(connect: Connect, answer: Any) -> None:
    kubelet = connect(lambda ref: answer if ref.uid == "bad" else [DEVICE])
    found = kubelet.prepare("bad", "u-1")
    assert found["bad"].error.startswith("prepare claim default/claim-bad (bad): internal error: ")
    assert list(found["bad"].devices) == []
    assert len(found["u-1"].devices) == 1


def test_an_expected_error_is_logged_as_one_line_and_a_surprise_with_its_traceback(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    errors: dict[str, Exception] = {"u-1": PermanentError("expected"), "u-2": KeyError("surprise")}

    def fail(ref: ClaimRef) -> Any:
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

    def slow(ref: ClaimRef) -> list[AnsweredDevice]:
        entered.set()
        assert leave.wait(LONG)
        return preparer.prepare(ref)

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
