from __future__ import annotations

import pytest

from dra_sdk.wire.cdi.checks import MAX_ANNOTATIONS, MAX_CLOS_ID, device_problems, edits_problems, spec_problems

EDITS = {"env": ["A=1"]}


def spec(**changes):
    return {
        "cdiVersion": "1.1.0",
        "kind": "vendor.com/class",
        "devices": [{"name": "d", "containerEdits": EDITS}],
    } | changes


def test_a_good_spec_has_no_problems():
    assert list(spec_problems(spec(annotations={"example.com/Key": "v"}, containerEdits=EDITS))) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"cdiVersion": "2.0.0"}, "cdiVersion: '2.0.0' is no released version"),
        ({"kind": "vendor"}, "kind: kind 'vendor' must be vendor/class"),
        ({"devices": []}, "devices: must have at least one device"),
        ({"devices": [{"name": "d", "containerEdits": EDITS}] * 2}, "device d: defined twice"),
        ({"devices": [{"name": "d", "containerEdits": {}}]}, "device d: containerEdits: must not be empty"),
        ({"devices": [{"name": "d", "containerEdits": {"env": []}}]}, "device d: containerEdits: must not be empty"),
        (
            {"devices": [{"name": "d", "containerEdits": {"env": ["A"]}}]},
            "device d: env[0]: must be NAME=VALUE, is 'A'",
        ),
        ({"containerEdits": {"env": ["=A"]}}, "env[0]: must be NAME=VALUE, is '=A'"),
        ({"annotations": {"-a": ""}}, "annotations: key '-a' must be"),
        ({"annotations": {"-a.b/c": ""}}, "annotations: key '-a.b/c' must be"),
        ({"annotations": {"a" * 64: ""}}, f"annotations: key '{'a' * 64}' must be"),
        (
            {"annotations": {"a": "b" * MAX_ANNOTATIONS}},
            f"annotations: must have at most {MAX_ANNOTATIONS} bytes in all",
        ),
    ],
)
def test_broken_rules_of_a_spec(changes, problem):
    problems = list(spec_problems(spec(**changes)))
    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_membership_in_a_class_of_service_is_an_edit():
    assert list(device_problems({"name": "d", "containerEdits": {"intelRdt": {}}})) == []


@pytest.mark.parametrize(
    ("edits", "problem"),
    [
        ({"deviceNodes": [{"type": "c"}]}, "deviceNodes[0].path: must not be empty"),
        ({"deviceNodes": [{"path": "/dev/a", "type": "x"}]}, "deviceNodes[0].type: must be b, c, u or p, is 'x'"),
        (
            {"deviceNodes": [{"path": "/dev/a", "permissions": "rwx"}]},
            "deviceNodes[0].permissions: must be some of r, w and m",
        ),
        (
            {"mounts": [{"hostPath": "/a", "containerPath": "/b"}, {"hostPath": "/a"}]},
            "mounts[1].containerPath: must not be empty",
        ),
        ({"mounts": [{"containerPath": "/b"}]}, "mounts[0].hostPath: must not be empty"),
        ({"hooks": [{"path": "/bin/x"}]}, "hooks[0].hookName: must be one of prestart"),
        ({"hooks": [{"hookName": "poststop"}]}, "hooks[0].path: must not be empty"),
        ({"hooks": [{"hookName": "poststop", "path": "/x", "env": ["A"]}]}, "hooks[0].env[0]: must be NAME=VALUE"),
        ({"netDevices": [{"name": "a"}]}, "netDevices[0].hostInterfaceName: must not be empty"),
        ({"netDevices": [{"hostInterfaceName": "a"}]}, "netDevices[0].name: must not be empty"),
        (
            {"netDevices": [{"hostInterfaceName": "a", "name": "x"}, {"hostInterfaceName": "a", "name": "y"}]},
            "netDevices[1].hostInterfaceName: 'a' is used twice",
        ),
        (
            {"netDevices": [{"hostInterfaceName": "a", "name": "x"}, {"hostInterfaceName": "b", "name": "x"}]},
            "netDevices[1].name: 'x' is used twice",
        ),
        ({"intelRdt": {"closID": "a/b"}}, "intelRdt.closID: must be a file name"),
        ({"intelRdt": {"closID": "c" * (MAX_CLOS_ID + 1)}}, "intelRdt.closID: must be a file name"),
    ],
)
def test_broken_rules_of_edits(edits, problem):
    problems = list(edits_problems(edits))
    assert len(problems) == 1
    assert problems[0].startswith(problem)


@pytest.mark.parametrize(
    "edits",
    [
        {"env": ["A=", "B=1=2"]},
        {"deviceNodes": [{"path": "/dev/a", "permissions": "none"}, {"path": "/dev/b", "permissions": "mwr"}]},
        {"intelRdt": {"closID": "/"}},
        {"intelRdt": {"closID": "c" * MAX_CLOS_ID}},
        {"intelRdt": {}},
    ],
)
def test_good_edits(edits):
    assert list(edits_problems(edits)) == []
