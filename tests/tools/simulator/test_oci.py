from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.tools.simulator.oci import HostDevice, InjectionError, apply_edits, host_device, merged_edits, overwritten


def no_host(path: str) -> HostDevice:
    raise FileNotFoundError(path)


def node(**more: Any) -> dict[str, Any]:
    return {"deviceNodes": [{"path": "/dev/in", **more}]}


def test_the_device_numbers_come_from_the_host_path() -> None:
    spec: dict[str, Any] = {}
    asked = []

    def host(path: str) -> HostDevice:
        asked.append(path)
        return HostDevice("c", 195, 7, 0o600)

    apply_edits(spec, node(hostPath="/dev/out", permissions="rw", fileMode=0o640), host)
    assert asked == ["/dev/out"]
    (device,) = spec["linux"]["devices"]
    assert device == {"path": "/dev/in", "type": "c", "major": 195, "minor": 7, "fileMode": 0o640}
    (rule,) = spec["linux"]["resources"]["devices"]
    assert rule == {"allow": True, "type": "c", "major": 195, "minor": 7, "access": "rw"}


def test_a_device_that_is_not_on_the_host() -> None:
    with pytest.raises(InjectionError, match=r"CDI device '/dev/in': cannot stat host device '/dev/in'"):
        apply_edits({}, node(), no_host)


def test_a_device_of_another_type() -> None:
    with pytest.raises(InjectionError, match="the edit says type 'b', host device '/dev/in' has 'c'"):
        apply_edits({}, node(type="b"), lambda _: HostDevice("c", 1, 1, 0))


def test_a_complete_device_need_not_be_on_the_host() -> None:
    spec: dict[str, Any] = {}
    apply_edits(spec, node(type="p"), no_host)
    assert spec == {"linux": {"devices": [{"path": "/dev/in", "type": "p", "major": 0, "minor": 0}]}}


def test_the_owner_is_that_of_the_edit_or_else_of_the_container() -> None:
    spec: dict[str, Any] = {"process": {"user": {"uid": 1000, "gid": 0}}}
    apply_edits(spec, node(type="c", major=1), no_host)
    assert spec["linux"]["devices"][0]["uid"] == 1000
    assert "gid" not in spec["linux"]["devices"][0]
    apply_edits(spec, node(type="c", major=1, uid=5, gid=6), no_host)
    (device,) = spec["linux"]["devices"]
    assert (device["uid"], device["gid"]) == (5, 6)


def test_a_mount_replaces_one_at_the_same_place() -> None:
    spec: dict[str, Any] = {"mounts": [{"destination": "/a/b", "source": "old"}, {"destination": "/x", "source": "x"}]}
    apply_edits(spec, {"mounts": [{"containerPath": "/a/b", "hostPath": "new", "options": ["ro"]}]})
    assert [(mount["destination"], mount["source"]) for mount in spec["mounts"]] == [("/x", "x"), ("/a/b", "new")]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ({"hostInterfaceName": "eth1", "name": "b"}, "interface of the host 'eth1' is there twice"),
        ({"hostInterfaceName": "eth2", "name": "a"}, "name in the container 'a' is there twice"),
    ],
)
def test_a_network_interface_is_moved_once(second: dict[str, str], why: str) -> None:
    first = {"hostInterfaceName": "eth1", "name": "a"}
    with pytest.raises(InjectionError, match=why):
        apply_edits({}, {"netDevices": [first, second]})


def test_what_devices_set_differently_is_told() -> None:
    same = {"deviceNodes": [{"path": "/dev/kfd"}], "mounts": [{"containerPath": "/a", "hostPath": "/h"}]}
    edits = {name: {**same, "env": ["X=1", f"Y={name}"]} for name in ("a", "b", "c")}
    (told,) = overwritten(edits)
    assert told == "environment variable Y is 'a' by a and 'b' by b and 'c' by c; the last is used"
    assert overwritten({"a": edits["a"]}) == []


def test_hooks_keep_their_order() -> None:
    spec: dict[str, Any] = {"hooks": {"poststop": [{"path": "/first"}]}}
    apply_edits(spec, {"hooks": [{"hookName": "poststop", "path": "/second", "timeout": 3}]})
    assert spec["hooks"] == {"poststop": [{"path": "/first"}, {"path": "/second", "timeout": 3}]}


def test_merging_edits() -> None:
    one = {"env": ["A=1"], "intelRdt": {"closID": "a"}, "mounts": None}
    assert merged_edits([one, {"env": ["B=2"], "intelRdt": {"closID": "b"}}, {}]) == {
        "env": ["A=1", "B=2"],
        "intelRdt": {"closID": "b"},
    }


def test_looking_up_this_machine(tmp_path: Path) -> None:
    null = host_device("/dev/null")
    assert (null.type, null.major, null.minor) == ("c", 1, 3)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    assert host_device(str(fifo)) == HostDevice("p", 0, 0, stat.S_IMODE(fifo.stat().st_mode))
    with pytest.raises(OSError, match="is not a device node"):
        host_device(str(tmp_path))
