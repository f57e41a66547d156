from __future__ import annotations

import json
import subprocess
import sys

import pytest

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model.edits import ContainerEdits, DeviceNode, Hook, Mount, NetDevice
from dra_sdk.wire.cdi import check_spec, claim_spec

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
        ("gpu", ContainerEdits(hooks=[Hook("poststop", "")]), "device gpu: hooks[0].path: must not be empty"),
    ],
)
def test_a_broken_rule_names_kind_device_and_field(name, edits, problem):
    with pytest.raises(InvalidObjectError) as refused:
        claim_spec(KIND, {name: edits})
    assert refused.value.subject == f"CDI spec {KIND}"
    assert [each[: len(problem)] for each in refused.value.problems] == [problem]


def test_a_path_object_instead_of_text_is_explained(tmp_path):
    with pytest.raises(
        InvalidObjectError, match=r"device gpu: mounts\[0\]\.hostPath: must be a string, is a PosixPath"
    ):
        claim_spec(KIND, {"gpu": ContainerEdits(mounts=[Mount(tmp_path, "/b")])})


def test_all_broken_rules_are_told_at_once():
    with pytest.raises(InvalidObjectError) as refused:
        claim_spec("gpu", {"a_": ContainerEdits(), "b": ContainerEdits(mounts=[Mount("", "")])})
    assert [problem.split(": ")[0] for problem in refused.value.problems] == [
        "kind",
        "device a_",
        "device a_",
        "device b",
        "device b",
    ]


def test_a_foreign_spec_is_refused_with_its_source_for_unknown_fields():
    spec = claim_spec(KIND, {"gpu": ContainerEdits(env={"A": "1"})})
    spec["devices"][0]["containerEdits"]["enviroment"] = []
    with pytest.raises(InvalidObjectError) as refused:
        check_spec(spec, "/etc/cdi/gpu.yaml")
    assert str(refused.value) == "CDI spec /etc/cdi/gpu.yaml: device gpu: enviroment: unknown field"


@pytest.mark.parametrize("spec", [None, [], "kind", 1])
def test_what_is_no_object_is_no_spec(spec):
    with pytest.raises(InvalidObjectError, match="must be an object"):
        check_spec(spec)


def test_a_device_that_is_no_object_is_named_by_its_place():
    with pytest.raises(InvalidObjectError, match=r"CDI spec: devices\[0\]: must be an object, is null"):
        check_spec({"cdiVersion": "0.3.0", "kind": KIND, "devices": [None]})


def test_writing_needs_no_yaml_parser():
    script = "import sys; sys.modules['yaml'] = None; import dra_sdk.wire.cdi"
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": ":".join(sys.path)})
