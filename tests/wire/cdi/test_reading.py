from __future__ import annotations

import pytest

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model.edits import ContainerEdits
from dra_sdk.wire.cdi import claim_spec
from dra_sdk.wire.cdi.reading import check_spec, read_spec

KIND = "gpu.example.com/device"
GOOD = """\
cdiVersion: "0.3.0"
kind: vendor.com/class
containerEdits:
devices:
- name: "dev1"
  containerEdits:
    deviceNodes:
    - {path: /dev/a, fileMode: 0660}
"""


def test_yaml_is_read_with_absent_nulls_and_octal_numbers():
    spec = read_spec(GOOD.encode(), "a.yaml")
    assert "containerEdits" not in spec
    assert spec["devices"][0]["containerEdits"]["deviceNodes"] == [{"path": "/dev/a", "fileMode": 0o660}]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "must hold one document, has none"),
        ("---\n", "must hold one document, has none"),
        ("kind: a\n---\nkind: b\n", "must hold one document, has 2"),
        ("kind: a\nkind: b\n", "line 2, column 1: key 'kind' is given twice"),
        ("kind: [a\n", "line 2, column 1: "),
        ("xyzzy: garbled\n", "xyzzy: unknown field"),
        ("- a\n", "must be an object, is a list"),
        (GOOD.replace('"0.3.0"', "0.3"), "cdiVersion: '0.3' is not a released version of CDI"),
        (GOOD.replace("dev1", "dev_"), "device dev_: name: device name 'dev_' must"),
        (GOOD.replace("0660", "-1"), "device dev1: deviceNodes[0].fileMode: must be from 0"),
        (GOOD.replace("/dev/a", '"/dev/\\0a"'), "device dev1: deviceNodes[0].path: must not contain a NUL character"),
    ],
)
def test_a_bad_file_is_refused_with_its_name(content, problem):
    with pytest.raises(InvalidObjectError) as refused:
        read_spec(content.encode(), "/etc/cdi/a.yaml")
    assert refused.value.subject == "CDI spec /etc/cdi/a.yaml"
    assert refused.value.problems[0].startswith(problem)


def test_unknown_fields_are_refused_with_the_name_of_the_file():
    spec = claim_spec(KIND, {"gpu": ContainerEdits(env={"A": "1"})})
    spec["devices"][0]["containerEdits"]["enviroment"] = []
    with pytest.raises(InvalidObjectError) as refused:
        check_spec(spec, "/etc/cdi/gpu.yaml")
    assert str(refused.value) == "CDI spec /etc/cdi/gpu.yaml: device gpu: enviroment: unknown field"


@pytest.mark.parametrize("spec", [None, [], "kind", 1])
def test_a_spec_must_be_an_object(spec):
    with pytest.raises(InvalidObjectError, match="must be an object"):
        check_spec(spec)


def test_a_device_that_is_not_an_object_is_named_by_its_index():
    with pytest.raises(InvalidObjectError, match=r"CDI spec: devices\[0\]: must be an object, is null"):
        check_spec({"cdiVersion": "0.3.0", "kind": KIND, "devices": [None]})
