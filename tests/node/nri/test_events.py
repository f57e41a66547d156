"""Events of NRI: their calls, masks, and the runtimes that know them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk.node.nri.events import BY_METHOD, Event, RuntimeInfo, from_state_change, mask, subscribed
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb


def test_the_numbers_are_those_of_the_messages() -> None:
    assert {event.name: event.value for event in Event} == {
        name: number for name, number in pb.Event.items() if name != "UNKNOWN"
    }


def test_every_event_has_a_method_of_the_service() -> None:
    methods = pb.DESCRIPTOR.services_by_name["Plugin"].methods_by_name
    assert set(BY_METHOD) == set(methods) - {"Configure", "Synchronize", "Shutdown", "StateChange"}
    for method, event in BY_METHOD.items():
        assert methods[method].input_type is event.call.request.DESCRIPTOR
        assert methods[method].output_type is event.call.response.DESCRIPTOR


def test_a_mask_has_bit_n_minus_1_for_event_n() -> None:
    assert mask([Event.CREATE_CONTAINER, Event.STOP_CONTAINER, Event.REMOVE_CONTAINER]) == 0x608


@given(st.sets(st.sampled_from(Event)))
def test_a_mask_tells_its_events(events: set[Event]) -> None:
    assert subscribed(mask(events)) == events


@pytest.mark.parametrize(
    ("name", "version", "stated", "nri"),
    [
        ("containerd", "v1.7.28", "", (0, 3)),
        ("containerd", "2.1.4~ds1", "", (0, 8)),
        ("containerd", "v2.2.0", "", (0, 10)),
        ("containerd", "v2.3.4", "v0.12.0", (0, 12, 0)),
        ("containerd", "v2.3.4", "(devel)", (0, 12)),
        ("cri-o", "1.32.1", "", (0, 9)),
        ("CRI-O", "1.35.0", "", (0, 10)),
        ("cri-o", "1.29.0", "", (0, 3)),
        ("another", "7.0", "", (0, 3)),
        ("another", "7.0", "0.12.1", (0, 12, 1)),
        ("containerd", "unknown", "", (0, 3)),
    ],
)
def test_the_version_of_nri_is_the_one_stated_or_that_of_the_release(
    name: str, version: str, stated: str, nri: tuple[int, ...]
) -> None:
    assert RuntimeInfo(name, version, stated, 2.0).nri == nri


def test_pod_updates_are_events_since_0_10() -> None:
    old, new = RuntimeInfo("x", "", "0.9.0", 2.0), RuntimeInfo("x", "", "0.10.0", 2.0)
    added = {Event.UPDATE_POD_SANDBOX, Event.POST_UPDATE_POD_SANDBOX, Event.VALIDATE_CONTAINER_ADJUSTMENT}
    assert {event for event in Event if not old.knows(event)} == added
    assert all(new.knows(event) for event in Event)


def test_a_state_change_becomes_the_request_of_its_own_call() -> None:
    change = pb.StateChangeEvent(event=pb.REMOVE_CONTAINER, pod=pb.PodSandbox(id="p"), container=pb.Container(id="c"))
    assert from_state_change(change) == (
        Event.REMOVE_CONTAINER,
        pb.ContainerEvent(pod=pb.PodSandbox(id="p"), container=pb.Container(id="c")),
    )
    change = pb.StateChangeEvent(event=pb.RUN_POD_SANDBOX, pod=pb.PodSandbox(id="p"))
    assert from_state_change(change) == (Event.RUN_POD_SANDBOX, pb.PodSandboxEvent(pod=pb.PodSandbox(id="p")))


def test_a_state_change_of_an_event_of_the_future_is_none() -> None:
    change = pb.StateChangeEvent.FromString(b"\x08\x63")  # event 99
    assert from_state_change(change) is None


def test_fields_that_are_not_in_our_messages_are_kept() -> None:
    unknown = pb.Container(id="c").SerializeToString() + bytes.fromhex("b201 03 0a 01 78")  # image.name = x
    assert pb.Container.FromString(unknown).SerializeToString() == unknown
