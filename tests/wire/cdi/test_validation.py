from __future__ import annotations

import pytest

from dra_sdk.wire.cdi.validation import (
    CURRENT,
    MAX_ANNOTATIONS,
    MAX_CLOS_ID,
    VERSIONS,
    device_problems,
    edits_problems,
    minimum_version,
    spec_problems,
    version_problem,
)

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
        ({"cdiVersion": "2.0.0"}, "cdiVersion: '2.0.0' is not a released version"),
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
def test_each_broken_rule_of_a_spec_is_named(changes, problem):
    problems = list(spec_problems(spec(**changes)))
    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_a_class_of_service_without_fields_is_an_edit():
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
def test_each_broken_rule_of_edits_is_named(edits, problem):
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
def test_good_edits_have_no_problems(edits):
    assert list(edits_problems(edits)) == []


KIND = "vendor.com/class"


def versioned(edits, **more):
    return {"kind": KIND, "devices": [{"name": "gpu", "containerEdits": edits}], **more}


@pytest.mark.parametrize(
    ("given", "version"),
    [
        (versioned({"env": ["A=1"]}), "0.3.0"),
        (versioned({"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "tmpfs"}]}), "0.4.0"),
        (versioned({"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}]}), "0.5.0"),
        ({"kind": KIND, "devices": [{"name": "0"}]}, "0.5.0"),
        (versioned({"env": ["A=1"]}, annotations={"a": "b"}), "0.6.0"),
        (versioned({"env": ["A=1"]}, kind="vendor.com/a.b"), "0.6.0"),
        (versioned({"additionalGids": [1]}), "0.7.0"),
        (versioned({"intelRdt": {}}), "0.7.0"),
        (versioned({"intelRdt": {"schemata": []}}), "1.1.0"),
        (versioned({"intelRdt": {"enableMonitoring": True}}), "1.1.0"),
        (versioned({"netDevices": [{"hostInterfaceName": "eth0", "name": "net1"}]}), "1.1.0"),
        (versioned({"env": ["A=1"]}, containerEdits={"netDevices": [{}]}), "1.1.0"),
    ],
)
def test_the_newest_field_decides_the_version(given, version):
    assert minimum_version(given) == version
    assert version_problem({**given, "cdiVersion": version}) is None
    assert version_problem({**given, "cdiVersion": CURRENT}) is None


def test_a_version_that_is_too_old_for_a_field_is_refused():
    older = VERSIONS[VERSIONS.index("1.1.0") - 1]
    problem = version_problem({**versioned({"netDevices": [{}]}), "cdiVersion": older})
    assert problem == f"must be at least 1.1.0 for the fields in use, is {older}"


@pytest.mark.parametrize("declared", ["", "1", "1.2.0", "vv1.1.0", "0.3"])
def test_an_unknown_version_is_refused(declared):
    assert "not a released version" in (version_problem({"cdiVersion": declared}) or "")
