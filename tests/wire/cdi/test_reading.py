from __future__ import annotations

import pytest

from dra_sdk.errors import InvalidObjectError
from dra_sdk.wire.cdi.reading import read_spec

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


def test_yaml_is_read_with_nulls_as_absent_and_octal_numbers():
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
        (GOOD.replace('"0.3.0"', "0.3"), "cdiVersion: '0.3' is no released version of CDI"),
        (GOOD.replace("dev1", "dev_"), "device dev_: name: device name 'dev_' must"),
        (GOOD.replace("0660", "-1"), "device dev1: deviceNodes[0].fileMode: must be from 0"),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_its_source(content, problem):
    with pytest.raises(InvalidObjectError) as refused:
        read_spec(content.encode(), "/etc/cdi/a.yaml")
    assert refused.value.subject == "CDI spec /etc/cdi/a.yaml"
    assert refused.value.problems[0].startswith(problem)
