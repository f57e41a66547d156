"""The checkpoint of a claim: what was written comes back, and anything else is an error, never "no state"."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk import AllocatedDevice, Condition, ContainerEdits, DeviceStatus, HeldClaim, HeldDevice, Quantity
from dra_sdk.errors import DraError, StateError
from dra_sdk.model.claim import NO_DEADLINE, ClaimRef
from dra_sdk.model.edits import EnvList
from dra_sdk.node.metadata import MetadataFile
from dra_sdk.node.prepare.checkpoint import FORMAT, Checkpoint, ClaimPhase, decode, encode, json_copy, salvage

REF = ClaimRef("ns", "claim", "u-1")


def completed(*devices: tuple[AllocatedDevice[None], str | None]) -> Checkpoint:
    """The state of devices that are prepared with a condition of this reason."""
    started = Checkpoint.started(REF, [device for device, _ in devices], "boot-1")
    prepared = [
        device.prepared(ContainerEdits(env={"A": "1"}), status=reason and _status(reason)) for device, reason in devices
    ]
    return started.completed(prepared, "example.com/lamp", "lamps.example.com")


def _status(reason: str) -> DeviceStatus:
    return DeviceStatus(conditions=[Condition(type="Ready", status=True, reason=reason)])


def reasons(state: Checkpoint) -> list[tuple[Any, ...]]:
    """Device, share and reason of each entry for `status.devices`."""
    return [(each["device"], each.get("shareID"), each["conditions"][0]["reason"]) for each in state.statuses]


def test_each_share_has_a_status_of_its_own() -> None:
    shares = [AllocatedDevice("r", "p", "lamp-0", None, share_id=share) for share in ("s-1", "s-2")]
    state = completed((shares[0], "One"), (shares[1], "Two"))
    assert reasons(state) == [("lamp-0", "s-1", "One"), ("lamp-0", "s-2", "Two")]


def test_cdi_devices_of_others_come_after_the_own_one() -> None:
    device = AllocatedDevice("r", "p", "lamp-0", None)
    started = Checkpoint.started(REF, [device], "boot-1")
    for edits, own in ((ContainerEdits(env={"A": "1"}), ("example.com/lamp=claim-u-1_r_lamp-0",)), (None, ())):
        prepared = device.prepared(edits, cdi_devices=["vendor.com/gpu=0", "vendor.com/gpu=all"])
        state = started.completed([prepared], "example.com/lamp", "lamps.example.com")
        assert state.claim.devices[0].cdi_ids == (*own, "vendor.com/gpu=0", "vendor.com/gpu=all")


@pytest.mark.parametrize(
    ("name", "problem"), [("gpu0", "must be vendor/class=name"), ("example.com/lamp=x", "its kind is the driver's own")]
)
def test_a_cdi_device_of_others_needs_a_qualified_name_of_another_kind(name: str, problem: str) -> None:
    device = AllocatedDevice("r", "p", "lamp-0", None)
    started = Checkpoint.started(REF, [device], "boot-1")
    with pytest.raises(DraError, match=problem):
        started.completed([device.prepared(cdi_devices=[name])], "example.com/lamp", "lamps.example.com")


def test_a_device_of_several_requests_has_one_status() -> None:
    """The API server refuses a whole list in which a device is twice."""
    mine = AllocatedDevice("r", "p", "lamp-0", None)
    admin = AllocatedDevice("look", "p", "lamp-0", None, admin_access=True)
    other = AllocatedDevice("r", "p", "lamp-1", None)
    assert reasons(completed((mine, "First"), (other, "Other"), (admin, "Last"))) == [
        ("lamp-0", None, "Last"),
        ("lamp-1", None, "Other"),
    ]
    assert reasons(completed((mine, "First"), (admin, None))) == [("lamp-0", None, "First")]


def test_a_reported_status_replaces_that_of_its_device_alone() -> None:
    devices = [AllocatedDevice("r", "p", f"lamp-{number}", None) for number in (0, 1)]
    state = completed((devices[0], "One"), (devices[1], None))
    state = state.reported("lamps.example.com", state.claim.devices[1], _status("Two"))
    state = state.reported("lamps.example.com", state.claim.devices[0], _status("Three"))
    assert reasons(state) == [("lamp-0", None, "Three"), ("lamp-1", None, "Two")]


def test_a_condition_keeps_its_transition_time_until_its_status_changes() -> None:
    state = completed((AllocatedDevice("r", "p", "lamp-0", None), "One"))
    long_ago = "2020-01-01T00:00:00Z"
    state.statuses[0]["conditions"][0]["lastTransitionTime"] = long_ago
    state = state.reported("lamps.example.com", state.claim.devices[0], _status("Two"))
    assert state.statuses[0]["conditions"][0]["lastTransitionTime"] == long_ago
    dark = DeviceStatus(conditions=[Condition(type="Ready", status=False, reason="Dark")])
    state = state.reported("lamps.example.com", state.claim.devices[0], dark)
    assert state.statuses[0]["conditions"][0]["lastTransitionTime"] != long_ago


def test_the_variable_of_a_request_comes_with_its_first_device() -> None:
    devices = [AllocatedDevice("r/sub", "p", "lamp-0", None), AllocatedDevice("r/sub", "p", "lamp-1", None)]
    prepared = [devices[0].prepared(), devices[1].prepared(ContainerEdits(env={"A": "1"}))]
    state = Checkpoint.started(REF, devices, "boot-1", ["pod-1", "pod-2"])
    found = state.completed(prepared, "example.com/lamp", "lamps", variables={"r": ContainerEdits(env={"V": "x"})})
    assert [each.cdi_ids for each in found.claim.devices] == [
        ("example.com/lamp=request-u-1_r",),
        ("example.com/lamp=claim-u-1_r.sub_lamp-1",),
    ]
    assert found.cdi_spec is not None
    edits = {each["name"]: each["containerEdits"]["env"] for each in found.cdi_spec["devices"]}
    assert edits == {"claim-u-1_r.sub_lamp-1": ["A=1"], "request-u-1_r": ["V=x"]}
    assert found.held("boot-1", NO_DEADLINE).pods == ("pod-1", "pod-2")
    assert decode(encode(found), "x") == found


STATE = Checkpoint(
    HeldClaim(
        "default",
        "lamps",
        "u-1",
        (
            HeldDevice(
                request="r/sub",
                pool="node-a",
                name="lamp-0",
                share_id="s-1",
                admin_access=True,
                consumed_capacity={"memory": Quantity("2Gi")},
                data={"slot": 3},
                cdi_ids=("example.com/lamp=a",),
            ),
            HeldDevice(request="r", pool="node-a", name="lamp-1"),
        ),
        journal=({"before": "off"},),
    ),
    "boot-1",
    cdi_spec={"cdiVersion": "0.3.0"},
)


def seal(body: bytes, **header: Any) -> bytes:
    """A file with this body and a header that fits it, but for what `header` says."""
    head = {"version": FORMAT, "sha256": hashlib.sha256(body).hexdigest(), **header}
    return json.dumps(head).encode() + b"\n" + body + b"\n"


def body_of(state: Checkpoint) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode(state).splitlines()[1])
    return found


def test_what_was_written_comes_back() -> None:
    assert decode(encode(STATE), "f") == STATE


def test_the_file_is_two_lines_of_json_without_defaults() -> None:
    lines = encode(STATE).decode().splitlines()
    assert len(lines) == 2
    header = json.loads(lines[0])
    assert (header["version"], header["sha256"]) == (1, hashlib.sha256(lines[1].encode()).hexdigest())
    held = [["r/sub", "node-a", "lamp-0", "s-1", True], ["r", "node-a", "lamp-1", None, False]]
    assert header["claim"] == ["default", "lamps", "u-1", "boot-1", held]
    assert json.loads(lines[1])["devices"][1] == {"request": "r", "pool": "node-a", "name": "lamp-1"}


def test_hooks_see_quantities_and_how_far_it_came() -> None:
    held = STATE.held("boot-1", NO_DEADLINE)
    assert str(held) == "claim default/lamps (u-1)"
    assert held.devices[0] == HeldDevice(
        "r/sub", "node-a", "lamp-0", "s-1", True, {"memory": Quantity("2Gi")}, {"slot": 3}, ("example.com/lamp=a",)
    )
    assert held.journal == ({"before": "off"},)
    assert (held.complete, held.rebooted) == (True, False)
    started = STATE.undoing().held("boot-2", NO_DEADLINE)
    assert (started.complete, started.rebooted) == (False, True)


def test_every_truncation_is_noticed() -> None:
    whole = encode(STATE)
    for length in range(len(whole) - 1):  # without the last newline the content is still whole
        with pytest.raises(StateError, match="state file f "):
            decode(whole[:length], "f")
    assert decode(whole[:-1], "f") == STATE


def test_every_flipped_bit_is_noticed_or_harmless() -> None:
    whole = encode(STATE)
    for index in range(len(whole)):
        damaged = bytearray(whole)
        damaged[index] ^= 1 << index % 8
        try:
            found = decode(bytes(damaged), "f")
        except StateError:
            continue
        assert found == STATE, f"byte {index}"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no readable header"),
        (b"\n", "no readable header"),
        (b"\0" * 4096, "no readable header"),
        (b"\xff\xfe\n{}\n", "no readable header"),
        (b"hello\nworld\n", "no readable header"),
        (b"{}\n{}\n", "no readable header"),
        (b"[]\n{}\n", "no readable header"),
        (b"null\n{}\n", "no readable header"),
        (b'{"version":null,"sha256":""}\n{}\n', "no readable header"),
        (b'{"version":Infinity,"sha256":""}\n{}\n', "no readable header"),
        (b'{"version":1}\n{}\n', "no readable header"),
        (b"[" * 200_000, "no readable header"),
        (json.dumps({"claims": {}}).encode(), "no readable header"),
        (b'{"version":1,"sha256":""}\n{}\n', "checksum does not match"),
        (seal(b"{}"), "cannot be understood: namespace: Field required"),
        (seal(b"[]"), "cannot be understood: the whole: "),
        (seal(b"null"), "cannot be understood: the whole: "),
        (seal(b"not json"), "cannot be understood"),
        (seal(b"\xff"), "cannot be understood"),
        (seal(b"[" * 200_000), "cannot be understood"),
        (seal(json.dumps({**body_of(STATE), "phase": "PrepareDreamt"}).encode()), "cannot be understood: phase"),
        (seal(json.dumps({**body_of(STATE), "devices": None}).encode()), "cannot be understood: devices"),
        (seal(b"{}", version=2), "has format 2, this release reads up to 1"),
        (seal(b"{}", version=10**30), "this release reads up to 1"),
    ],
)
def test_anything_else_is_an_error_that_names_the_file(content: bytes, reason: str) -> None:
    with pytest.raises(StateError) as caught:
        decode(content, "/data/claims/u-1.json")
    assert "state file /data/claims/u-1.json" in str(caught.value)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 300


def test_fields_of_a_later_release_are_ignored() -> None:
    later = body_of(STATE)
    later["futureField"] = {"x": 1}
    later["devices"][0]["future"] = [1, 2]
    assert decode(seal(json.dumps(later).encode()), "f") == STATE


def test_files_of_the_first_release_stay_readable() -> None:
    body = (
        b'{"namespace":"default","name":"lamps","uid":"u-1","boot_id":"b","phase":"PrepareStarted",'
        b'"devices":[{"request":"r","pool":"p","name":"d"}]}'
    )
    found = decode(seal(body), "f")
    assert found.phase is ClaimPhase.STARTED
    assert found.claim.devices == (HeldDevice(request="r", pool="p", name="d"),)


def test_the_body_is_that_of_the_first_release() -> None:
    first, second = STATE.claim.devices
    state = replace(
        STATE,
        metadata=(MetadataFile("r", "p", "/p", "{}"),),
        statuses=({"driver": "d"},),
        claim=replace(STATE.claim, devices=(replace(first, data={"slot": 3, "ä": "\ud800"}), second)),
    )
    head, body, end = encode(state).split(b"\n")
    assert json.loads(head)["sha256"] == "9f6d016404233a9afac2325e0f9a30b97ee14ba769a7deb6561e65b2bca9c0ec"
    assert end == b""
    assert body == (
        b'{"namespace":"default","name":"lamps","uid":"u-1","boot_id":"boot-1","phase":"PrepareCompleted","devices":['
        b'{"request":"r/sub","pool":"node-a","name":"lamp-0","share_id":"s-1","admin_access":true,"consumed_capacity":'
        b'{"memory":"2Gi"},"data":{"slot":3,"\\u00e4":"\\ud800"},"cdi_ids":["example.com/lamp=a"]},{"request":"r","pool":'
        b'"node-a","name":"lamp-1"}],"journal":[{"before":"off"}],"cdi_spec":{"cdiVersion":"0.3.0"},"metadata":[{"request":'
        b'"r","path":"p","container_path":"/p","content":"{}"}],"statuses":[{"driver":"d"}]}'
    )
    assert decode(encode(state), "f") == state


def test_an_empty_spec_of_a_file_is_no_spec() -> None:
    """No release wrote one, and a runtime refuses it."""
    head, body, end = encode(STATE).split(b"\n")
    empty = json.dumps({**json.loads(body), "cdi_spec": {}}).encode()
    header = {**json.loads(head), "sha256": hashlib.sha256(empty).hexdigest()}
    assert decode(b"\n".join([json.dumps(header).encode(), empty, end]), "f") == replace(STATE, cdi_spec=None)


text = st.text(st.characters(), max_size=5)  # lone surrogates too
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(text, values, max_size=3), st.lists(st.dictionaries(text, values, max_size=2), max_size=2))
def test_any_json_a_driver_keeps_comes_back(data: dict[str, Any], journal: list[dict[str, Any]]) -> None:
    device = HeldDevice(request="r", pool="p", name="d", data=json_copy(data))
    state = replace(STATE, claim=replace(STATE.claim, devices=(device,), journal=tuple(json_copy(journal))))
    again = decode(encode(state), "f")
    assert again == state
    assert again.claim.devices[0].data == data
    assert list(again.claim.journal) == journal


@given(st.binary(max_size=60))
def test_random_bytes_are_an_error(content: bytes) -> None:
    with pytest.raises(StateError):
        decode(content, "f")


def deep(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"x": found}
    return found


def test_deep_json_is_kept_whole_or_refused_before_it_is_written() -> None:
    kept = json_copy(deep(300))
    assert decode(encode(replace(STATE, claim=replace(STATE.claim, journal=(kept,)))), "f").claim.journal == (kept,)
    with pytest.raises(ValueError, match="is not JSON"):
        json_copy(deep(100_000))


def test_json_copy_is_a_copy_as_it_will_be_after_a_restart() -> None:
    mine = {"a": (1, 2), 3: [4]}
    kept = json_copy(mine)
    assert kept == {"a": [1, 2], "3": [4]}
    mine[3].append(5)  # type: ignore[attr-defined]
    assert kept["3"] == [4]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object(), b"x", {"a": {("t",): 1}}])
def test_what_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not JSON"):
        json_copy(value)


LEFT = Checkpoint(
    HeldClaim(
        "default",
        "lamps",
        "u-1",
        (HeldDevice("r/sub", "node-a", "lamp-0", "s-1", True), HeldDevice("r", "node-a", "lamp-1")),
        complete=False,
    ),
    "boot-1",
)


def test_a_file_whose_end_is_lost_still_tells_what_it_holds() -> None:
    whole = encode(STATE)
    header = whole.index(b"\n")
    for length in range(header, len(whole) - 1):
        assert salvage(whole[:length]) == LEFT, length
    for length in range(header):
        assert salvage(whole[:length]) is None, length


def test_a_body_that_no_header_confirms_is_not_believed() -> None:
    head, _, body = encode(STATE).partition(b"\n")
    assert salvage(b"\0" * 100 + b"\n" + body) is None
    assert salvage(head.replace(b"u-1", b"u-2") + b"\n" + body.replace(b"lamp-0", b"lamp-9")) is None


def test_a_body_is_believed_if_only_the_claim_in_the_header_is_damaged() -> None:
    head, _, body = encode(STATE).partition(b"\n")
    found = salvage(head.replace(b"u-1", b"u-2") + b"\n" + body)
    assert found is not None
    assert [each.name for each in found.claim.devices] == ["lamp-0", "lamp-1"]
    assert (found.phase, found.claim.devices[0].data) == (ClaimPhase.STARTED, {})


def test_a_damaged_header_is_not_believed() -> None:
    head, _, body = encode(STATE).partition(b"\n")
    for damaged in (head.replace(b"lamp-0", b"lamp-9"), head.replace(b"u-1", b"u-2")):
        found = salvage(damaged + b"\n" + body[:40])
        assert found is None
        found = salvage(damaged + b"\n" + body)
        assert found is not None
        assert (found.claim.uid, found.claim.devices[0].name) == ("u-1", "lamp-0")


@given(st.binary(max_size=60))
def test_random_bytes_tell_nothing(content: bytes) -> None:
    assert salvage(content) is None


def test_what_devices_add_to_joined_variables_comes_back() -> None:
    lists = {"CARDS": EnvList(["0", "1"]), "PATHS": EnvList(["/opt/a"], ":")}
    device = HeldDevice("r", "p", "d", env_lists=lists)
    state = replace(STATE, claim=replace(STATE.claim, devices=(device,)))
    content = encode(state)
    assert b'"env_lists":{"CARDS":{"values":["0","1"],"separator":","},"PATHS":' in content
    assert decode(content, "f").claim.devices == (device,)
