from __future__ import annotations

import pytest

from dra_sdk.wire.cdi.versions import CURRENT, VERSIONS, minimum_version, version_problem

KIND = "vendor.com/class"


def spec(edits, **more):
    return {"kind": KIND, "devices": [{"name": "gpu", "containerEdits": edits}], **more}


@pytest.mark.parametrize(
    ("given", "version"),
    [
        (spec({"env": ["A=1"]}), "0.3.0"),
        (spec({"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "tmpfs"}]}), "0.4.0"),
        (spec({"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}]}), "0.5.0"),
        ({"kind": KIND, "devices": [{"name": "0"}]}, "0.5.0"),
        (spec({"env": ["A=1"]}, annotations={"a": "b"}), "0.6.0"),
        (spec({"env": ["A=1"]}, kind="vendor.com/a.b"), "0.6.0"),
        (spec({"additionalGids": [1]}), "0.7.0"),
        (spec({"intelRdt": {}}), "0.7.0"),
        (spec({"intelRdt": {"schemata": []}}), "1.1.0"),
        (spec({"intelRdt": {"enableMonitoring": True}}), "1.1.0"),
        (spec({"netDevices": [{"hostInterfaceName": "eth0", "name": "net1"}]}), "1.1.0"),
        (spec({"env": ["A=1"]}, containerEdits={"netDevices": [{}]}), "1.1.0"),
    ],
)
def test_the_newest_field_decides(given, version):
    assert minimum_version(given) == version
    assert version_problem({**given, "cdiVersion": version}) is None
    assert version_problem({**given, "cdiVersion": CURRENT}) is None


def test_a_version_too_old_for_a_field():
    older = VERSIONS[VERSIONS.index("1.1.0") - 1]
    problem = version_problem({**spec({"netDevices": [{}]}), "cdiVersion": older})
    assert problem == f"must be at least 1.1.0 for the fields in use, is {older}"


@pytest.mark.parametrize("declared", ["", "1", "1.2.0", "vv1.1.0", "0.3"])
def test_a_version_that_does_not_exist(declared):
    assert "no released version" in (version_problem({"cdiVersion": declared}) or "")
