from __future__ import annotations

import pytest

from dra_sdk.model.edits import ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice
from dra_sdk.wire.cdi import edits_to_json, is_empty
from dra_sdk.wire.cdi.edits import env_problems


def test_everything_that_is_set_is_written():
    edits = ContainerEdits(
        env={"A": "1", "B": ""},
        device_nodes=[
            DeviceNode("/dev/a"),
            DeviceNode("/dev/b", "/dev/host", "c", 1, 0, 0o660, "rw", 0, 7),
        ],
        mounts=[Mount("/h", "/c"), Mount("tmpfs", "/t", options=(), type="tmpfs")],
        hooks=[Hook("createContainer", "/bin/x", ["x", "-v"], {"A": "1"}, 5), Hook("poststop", "/bin/y")],
        net_devices=[NetDevice("eth1", "net0")],
        additional_gids=[44],
        intel_rdt=IntelRdt("gold", "L3:0=f", "MB:0=50", ["L2:0=f"], enable_monitoring=True),
    )
    assert edits_to_json(edits) == {
        "env": ["A=1", "B="],
        "deviceNodes": [
            {"path": "/dev/a"},
            {
                "path": "/dev/b",
                "hostPath": "/dev/host",
                "type": "c",
                "major": 1,
                "minor": 0,
                "fileMode": 0o660,
                "permissions": "rw",
                "uid": 0,
                "gid": 7,
            },
        ],
        "netDevices": [{"hostInterfaceName": "eth1", "name": "net0"}],
        "hooks": [
            {"hookName": "createContainer", "path": "/bin/x", "args": ["x", "-v"], "env": ["A=1"], "timeout": 5},
            {"hookName": "poststop", "path": "/bin/y"},
        ],
        "mounts": [
            {"hostPath": "/h", "containerPath": "/c", "options": ["ro", "nosuid", "nodev", "bind"]},
            {"hostPath": "tmpfs", "containerPath": "/t", "type": "tmpfs"},
        ],
        "intelRdt": {
            "closID": "gold",
            "l3CacheSchema": "L3:0=f",
            "memBwSchema": "MB:0=50",
            "schemata": ["L2:0=f"],
            "enableMonitoring": True,
        },
        "additionalGids": [44],
    }


def test_nothing_is_written_of_what_is_not_set():
    assert edits_to_json(ContainerEdits()) == {}
    assert edits_to_json(ContainerEdits(intel_rdt=IntelRdt())) == {"intelRdt": {}}


@pytest.mark.parametrize(
    "edits",
    [
        ContainerEdits(env={"A": ""}),
        ContainerEdits(device_nodes=[DeviceNode("/dev/a")]),
        ContainerEdits(mounts=[Mount("/a", "/b")]),
        ContainerEdits(hooks=[Hook("poststop", "/x")]),
        ContainerEdits(net_devices=[NetDevice("a", "b")]),
        ContainerEdits(additional_gids=[0]),
        ContainerEdits(intel_rdt=IntelRdt()),
    ],
)
def test_any_edit_is_not_empty(edits):
    assert not is_empty(edits)
    assert is_empty(ContainerEdits())


def test_names_of_variables_that_would_become_others():
    edits = ContainerEdits(env={"A=B": "1", "C": "="}, hooks=[Hook("poststop", "/x", env={"": "1"})])
    assert list(env_problems(edits)) == [
        "env: the name of a variable must not be empty or hold '=', is 'A=B'",
        "hooks[0].env: the name of a variable must not be empty or hold '=', is ''",
    ]
