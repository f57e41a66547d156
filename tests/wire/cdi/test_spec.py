from __future__ import annotations

import enum
import json
import subprocess
import sys

import pytest

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model.edits import ContainerEdits, DeviceNode, IntelRdt, Mount, NetDevice, OciHook
from dra_sdk.wire.cdi import claim_spec, is_empty
from dra_sdk.wire.cdi.reading import check_spec
from dra_sdk.wire.cdi.spec import edits_to_json

KIND = "gpu.example.com/device"


def test_one_device_per_name_and_the_lowest_version_that_suffices():
    spec = claim_spec(
        KIND,
        {
            "claim-1_gpu_gpu-0": ContainerEdits(env={"GPU": "0"}, device_nodes=[DeviceNode("/dev/gpu0")]),
            "claim-1_gpu_gpu-1": ContainerEdits(mounts=[Mount("/lib/gpu", "/lib/gpu")]),
        },
    )
    assert spec == {
        "cdiVersion": "0.3.0",
        "kind": KIND,
        "devices": [
            {"name": "claim-1_gpu_gpu-0", "containerEdits": {"env": ["GPU=0"], "deviceNodes": [{"path": "/dev/gpu0"}]}},
            {
                "name": "claim-1_gpu_gpu-1",
                "containerEdits": {
                    "mounts": [
                        {
                            "hostPath": "/lib/gpu",
                            "containerPath": "/lib/gpu",
                            "options": ["ro", "nosuid", "nodev", "bind"],
                        }
                    ]
                },
            },
        ],
    }
    assert check_spec(json.loads(json.dumps(spec))) == spec


def test_a_newer_field_raises_the_version():
    assert claim_spec(KIND, {"a": ContainerEdits(net_devices=[NetDevice("eth1", "net0")])})["cdiVersion"] == "1.1.0"


@pytest.mark.parametrize(
    ("name", "edits", "problem"),
    [
        ("gpu", ContainerEdits(), "device gpu: containerEdits: must not be empty"),
        ("gpu 0", ContainerEdits(env={"A": "1"}), "device gpu 0: name: device name 'gpu 0' must"),
        ("gpu", ContainerEdits(env={"A=B": "1"}), "device gpu: env: the name of a variable must"),
        ("gpu", ContainerEdits(mounts=[Mount("", "/b")]), "device gpu: mounts[0].hostPath: must not be empty"),
        (
            "gpu",
            ContainerEdits(device_nodes=[DeviceNode("/dev/a", permissions="x")]),
            "device gpu: deviceNodes[0].permissions: must be some",
        ),
        (
            "gpu",
            ContainerEdits(device_nodes=[DeviceNode("/dev/a", gid=-1)]),
            "device gpu: deviceNodes[0].gid: must be from 0 to",
        ),
        ("gpu", ContainerEdits(additional_gids=[2**32]), "device gpu: additionalGids[0]: must be from 0 to 4294967295"),
        ("gpu", ContainerEdits(hooks=[OciHook("poststop", "")]), "device gpu: hooks[0].path: must not be empty"),
        (
            "gpu",
            ContainerEdits(hooks=[OciHook("poststop", "/x", "x")]),
            "device gpu: hooks[0].args: must be a list, is a string",
        ),
        (
            "gpu",
            ContainerEdits(mounts=[Mount("/a", "/b", "ro")]),
            "device gpu: mounts[0].options: must be a list, is a string",
        ),
        (
            "gpu",
            ContainerEdits(intel_rdt=IntelRdt(schemata="L3:0=f")),
            "device gpu: intelRdt.schemata: must be a list, is a string",
        ),
    ],
)
def test_a_broken_rule_names_kind_device_and_field(name, edits, problem):
    with pytest.raises(InvalidObjectError) as refused:
        claim_spec(KIND, {name: edits})
    assert refused.value.subject == f"CDI spec {KIND}"
    assert [sentence[: len(problem)] for sentence in refused.value.problems] == [problem]


def test_a_path_object_instead_of_text_is_explained(tmp_path):
    with pytest.raises(
        InvalidObjectError, match=r"device gpu: mounts\[0\]\.hostPath: must be a string, is a PosixPath"
    ):
        claim_spec(KIND, {"gpu": ContainerEdits(mounts=[Mount(tmp_path, "/b")])})


def test_all_broken_rules_are_reported_at_once():
    with pytest.raises(InvalidObjectError) as refused:
        claim_spec("gpu", {"a_": ContainerEdits(), "b": ContainerEdits(mounts=[Mount("", "")])})
    assert [problem.split(": ")[0] for problem in refused.value.problems] == [
        "kind",
        "device a_",
        "device a_",
        "device b",
        "device b",
    ]


def test_writing_needs_no_yaml_parser():
    script = "import sys; sys.modules['yaml'] = None; import dra_sdk.wire.cdi"
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_everything_that_is_set_is_written():
    edits = ContainerEdits(
        env={"A": "1", "B": ""},
        device_nodes=[
            DeviceNode("/dev/a"),
            DeviceNode("/dev/b", "/dev/host", "c", 1, 0, 0o660, "rw", 0, 7),
        ],
        mounts=[Mount("/h", "/c"), Mount("tmpfs", "/t", options=(), type="tmpfs")],
        hooks=[OciHook("createContainer", "/bin/x", ["x", "-v"], {"A": "1"}, 5), OciHook("poststop", "/bin/y")],
        net_devices=[NetDevice("eth1", "net0")],
        additional_gids=[44],
        intel_rdt=IntelRdt("gold", "L3:0=f", "MB:0=50", ["L2:0=f"], enable_monitoring=True),
    )
    problems = []
    assert edits_to_json(edits, problems) == {
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
    assert problems == []


def test_fields_that_are_not_set_are_not_written():
    assert edits_to_json(ContainerEdits(), []) == {}
    assert edits_to_json(ContainerEdits(intel_rdt=IntelRdt()), []) == {"intelRdt": {}}


@pytest.mark.parametrize(
    "edits",
    [
        ContainerEdits(env={"A": ""}),
        ContainerEdits(device_nodes=[DeviceNode("/dev/a")]),
        ContainerEdits(mounts=[Mount("/a", "/b")]),
        ContainerEdits(hooks=[OciHook("poststop", "/x")]),
        ContainerEdits(net_devices=[NetDevice("a", "b")]),
        ContainerEdits(additional_gids=[0]),
        ContainerEdits(intel_rdt=IntelRdt()),
    ],
)
def test_edits_with_any_field_are_not_empty(edits):
    assert not is_empty(edits)
    assert is_empty(ContainerEdits())


def test_variable_names_that_would_change_are_refused():
    edits = ContainerEdits(env={"A=B": "1", "C": "="}, hooks=[OciHook("poststop", "/x", env={"": "1"})])
    problems = []
    edits_to_json(edits, problems)
    assert problems == [
        ".env: the name of a variable must be text, not empty and without '=', is 'A=B'",
        ".hooks[0].env: the name of a variable must be text, not empty and without '=', is ''",
    ]


def everywhere(text):
    """Yield edits with `text` in one string, and the field that the error must name."""
    yield "env[0]", ContainerEdits(env={"A": text})
    yield "env[0]", ContainerEdits(env={f"A{text}": "1"})
    for field, name in (("path", "path"), ("host_path", "hostPath"), ("type", "type"), ("permissions", "permissions")):
        node = {"path": "/dev/a", field: text}
        yield f"deviceNodes[0].{name}", ContainerEdits(device_nodes=[DeviceNode(**node)])
    yield "mounts[0].hostPath", ContainerEdits(mounts=[Mount(text, "/b")])
    yield "mounts[0].containerPath", ContainerEdits(mounts=[Mount("/a", text)])
    yield "mounts[0].options[1]", ContainerEdits(mounts=[Mount("/a", "/b", options=["ro", text])])
    yield "mounts[0].type", ContainerEdits(mounts=[Mount("/a", "/b", type=text)])
    yield "hooks[0].hookName", ContainerEdits(hooks=[OciHook(text, "/x")])
    yield "hooks[0].path", ContainerEdits(hooks=[OciHook("poststop", text)])
    yield "hooks[0].args[1]", ContainerEdits(hooks=[OciHook("poststop", "/x", ["x", text])])
    yield "hooks[0].env[0]", ContainerEdits(hooks=[OciHook("poststop", "/x", env={"A": text})])
    yield "hooks[0].env[0]", ContainerEdits(hooks=[OciHook("poststop", "/x", env={text: "1"})])
    yield "netDevices[0].hostInterfaceName", ContainerEdits(net_devices=[NetDevice(text, "b")])
    yield "netDevices[0].name", ContainerEdits(net_devices=[NetDevice("a", text)])
    for field, name in (("clos_id", "closID"), ("l3_cache_schema", "l3CacheSchema"), ("mem_bw_schema", "memBwSchema")):
        yield f"intelRdt.{name}", ContainerEdits(intel_rdt=IntelRdt(**{field: text}))
    yield "intelRdt.schemata[0]", ContainerEdits(intel_rdt=IntelRdt(schemata=[text]))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("\0", "a NUL character"),
        ("a\0b", "a NUL character"),
        ("\ud800", "an unpaired surrogate"),
        ("\udfffx", "an unpaired surrogate"),
    ],
)
def test_nul_characters_and_unpaired_surrogates_are_refused_in_every_field(text, kind):
    for field, edits in everywhere(text):
        with pytest.raises(InvalidObjectError) as refused:
            claim_spec(KIND, {"gpu": edits})
        (problem,) = refused.value.problems
        assert problem.startswith(f"device gpu: {field}: must not contain {kind}, is ")
        json.dumps(problem).encode()


@pytest.mark.parametrize("text", ["a\nb", "ü", "\U0001f600", "\t", " "])
def test_any_other_text_is_kept(text):
    edits = ContainerEdits(env={"A": text}, mounts=[Mount(f"/{text}", "/b", options=[text])])
    (device,) = claim_spec(KIND, {"gpu": edits})["devices"]
    assert device["containerEdits"]["env"] == [f"A={text}"]
    assert device["containerEdits"]["mounts"] == [{"hostPath": f"/{text}", "containerPath": "/b", "options": [text]}]


@pytest.mark.parametrize("text", ["\0", "\ud800"])
def test_nul_characters_and_unpaired_surrogates_are_refused_in_names(text):
    edits = ContainerEdits(env={"A": "1"})
    for kind, name in ((KIND, f"gpu{text}"), (f"example.com/gpu{text}", "gpu")):
        with pytest.raises(InvalidObjectError, match="must start"):
            claim_spec(kind, {name: edits})


class Owner(enum.IntEnum):
    ROOT = 0


class SharedNode(DeviceNode):
    """A device node of a class of the author's own."""


def test_device_nodes_may_be_of_a_subclass_and_lists_any_iterable():
    edits = ContainerEdits(
        device_nodes={"gpu": SharedNode("/dev/gpu", uid=Owner.ROOT)}.values(),
        mounts=(mount for mount in [Mount("/a", "/b", options={"ro"})]),
        additional_gids=frozenset({5}),
    )
    (device,) = claim_spec(KIND, {"gpu": edits})["devices"]
    assert device["containerEdits"] == {
        "deviceNodes": [{"path": "/dev/gpu", "uid": 0}],
        "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}],
        "additionalGids": [5],
    }


@pytest.mark.parametrize(("wrong", "kind"), [(False, "a boolean"), (0.0, "a fraction")])
def test_a_wrong_type_that_is_false_is_refused_like_any_other(wrong, kind):
    edits = ContainerEdits(device_nodes=[DeviceNode("/dev/gpu", uid=wrong)])
    with pytest.raises(InvalidObjectError, match=f"deviceNodes.0..uid: must be a whole number, is {kind}"):
        claim_spec(KIND, {"gpu": edits})


@pytest.mark.parametrize(
    ("edits", "problem"),
    [
        (ContainerEdits(env={"A": 1}), "env: the value of A must be text, is 1"),
        (ContainerEdits(env={1: "A"}), "env: the name of a variable must be text, not empty and without '=', is 1"),
        (ContainerEdits(env=["A=1"]), "env: must be a mapping of names to texts, is ['A=1']"),
        (ContainerEdits(env=[]), "env: must be a mapping of names to texts, is []"),
        (ContainerEdits(env_lists=[]), "env_lists: must be a mapping of names to lists of texts, is []"),
        (ContainerEdits(hooks=[{"path": "x"}]), "hooks[0]: must be of type OciHook, is {'path': 'x'}"),
        (
            ContainerEdits(hooks=[OciHook("poststop", "/x", env=[])]),
            "hooks[0].env: must be a mapping of names to texts, is []",
        ),
        (ContainerEdits(hooks=[OciHook("poststop", "/x", [1])]), "hooks[0].args[0]: must be a string, is a number"),
        (
            ContainerEdits(device_nodes=[{"path": "/dev/x"}]),
            "deviceNodes[0]: must be of type DeviceNode, is {'path': '/dev/x'}",
        ),
        (ContainerEdits(device_nodes=["/dev/x"]), "deviceNodes[0]: must be of type DeviceNode, is '/dev/x'"),
        (ContainerEdits(device_nodes={"a": DeviceNode("/a")}), "deviceNodes: must be a list, is an object"),
        (ContainerEdits(device_nodes=DeviceNode("/a")), "deviceNodes: must be a list, is a DeviceNode"),
        (ContainerEdits(device_nodes=None), "deviceNodes: must be a list, is null"),
        (ContainerEdits(device_nodes=""), "deviceNodes: must be a list, is a string"),
        (ContainerEdits(device_nodes=[DeviceNode(None)]), "deviceNodes[0].path: must be a string, is null"),
        (ContainerEdits(device_nodes=[DeviceNode("/a", [])]), "deviceNodes[0].hostPath: must be a string, is a list"),
        (ContainerEdits(device_nodes=[DeviceNode("/a", 5)]), "deviceNodes[0].hostPath: must be a string, is a number"),
        (
            ContainerEdits(device_nodes=[DeviceNode("/a", permissions=())]),
            "deviceNodes[0].permissions: must be a string, is a tuple",
        ),
        (
            ContainerEdits(device_nodes=[DeviceNode("/a", major="")]),
            "deviceNodes[0].major: must be a whole number, is a string",
        ),
        (ContainerEdits(mounts=[{}]), "mounts[0]: must be of type Mount, is {}"),
        (ContainerEdits(mounts=[Mount("/a", "/b", {})]), "mounts[0].options: must be a list, is an object"),
        (ContainerEdits(net_devices=[Mount("a", "b")]), "netDevices[0]: must be of type NetDevice, is Mount("),
        (ContainerEdits(additional_gids=b"\5"), "additionalGids: must be a list, is a bytes"),
        (ContainerEdits(intel_rdt={}), "intelRdt: must be of type IntelRdt, is {}"),
        (
            ContainerEdits(intel_rdt=IntelRdt(enable_monitoring=[])),
            "intelRdt.enableMonitoring: must be a boolean, is a list",
        ),
    ],
)
def test_a_value_of_another_type_is_named_with_its_field(edits, problem):
    assert not is_empty(edits)
    with pytest.raises(InvalidObjectError) as caught:
        claim_spec(KIND, {"a": edits})
    (sentence,) = caught.value.problems
    assert sentence.startswith(f"device a: {problem}")


def test_wrong_types_of_all_devices_are_reported_at_once():
    with pytest.raises(InvalidObjectError) as caught:
        claim_spec(KIND, {"a": ContainerEdits(mounts=[{}, {}]), "b": ContainerEdits(env=[])})
    assert [problem.split(" must")[0] for problem in caught.value.problems] == [
        "device a: mounts[0]:",
        "device a: mounts[1]:",
        "device b: env:",
    ]
