"""Adding container edits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dra_sdk import ContainerEdits, DeviceNode, IntelRdt, Mount, NetDevice, OciHook

FULL = ContainerEdits(
    env={"A": "1"},
    device_nodes=[DeviceNode("/dev/a")],
    mounts=[Mount("/h", "/c")],
    hooks=[OciHook("createContainer", "/bin/x")],
    net_devices=[NetDevice("eth1", "net1")],
    additional_gids=[7],
    intel_rdt=IntelRdt(clos_id="gold"),
)
OTHER = ContainerEdits(
    env={"A": "2", "B": "3"},
    device_nodes=(DeviceNode("/dev/b"),),
    mounts=[Mount("/h2", "/c2")],
    hooks=[OciHook("poststop", "/bin/y")],
    net_devices=[NetDevice("eth2", "net2")],
    additional_gids=[8],
    intel_rdt=IntelRdt(clos_id="silver"),
)


def test_what_both_have_equally_comes_once_except_hooks() -> None:
    both = FULL + OTHER + FULL
    assert [node.path for node in both.device_nodes] == ["/dev/a", "/dev/b"]
    assert [mount.container_path for mount in both.mounts] == ["/c", "/c2"]
    assert ([device.name for device in both.net_devices], both.additional_gids) == (["net1", "net2"], (7, 8))
    assert [hook.path for hook in both.hooks] == ["/bin/x", "/bin/y", "/bin/x"]


def test_lists_are_joined_in_order_and_the_right_value_wins() -> None:
    both = FULL + OTHER
    assert both.env == {"A": "2", "B": "3"}
    assert [node.path for node in both.device_nodes] == ["/dev/a", "/dev/b"]
    assert [mount.container_path for mount in both.mounts] == ["/c", "/c2"]
    assert [hook.path for hook in both.hooks] == ["/bin/x", "/bin/y"]
    assert [device.name for device in both.net_devices] == ["net1", "net2"]
    assert both.additional_gids == (7, 8)
    assert both.intel_rdt == IntelRdt(clos_id="silver")


def test_an_rdt_class_survives_edits_without_one() -> None:
    assert (FULL + ContainerEdits()).intel_rdt == IntelRdt(clos_id="gold")


def test_adding_does_not_change_the_operands() -> None:
    env = {"A": "1"}
    left = ContainerEdits(env=env)
    assert (left + OTHER).env["A"] == "2"
    assert env == {"A": "1"}
    assert OTHER.env == {"A": "2", "B": "3"}


edits = st.builds(
    ContainerEdits,
    env=st.dictionaries(st.sampled_from("ABC"), st.text(max_size=2)),
    additional_gids=st.tuples(st.integers(0, 9)),
    mounts=st.tuples(st.builds(Mount, st.sampled_from("xy"), st.just("/c"))),
)


@given(edits, edits, edits)
def test_adding_is_associative(a: ContainerEdits, b: ContainerEdits, c: ContainerEdits) -> None:
    assert (a + b) + c == a + (b + c)
