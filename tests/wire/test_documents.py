from __future__ import annotations

import json

import pytest
import yaml

from dra_sdk.errors import InvalidObjectError
from dra_sdk.wire import documents, yaml_values
from dra_sdk.wire.documents import Document, objects, read_documents

YAML = b"""\
# a comment
kind: A
spec:
  items:
  - name: one
  - name: two
    keys:
      example.com/x: 1
---
kind: B
"""


def values(content):
    return [document.value for document in read_documents(content, "file")]


def test_documents_keep_their_order():
    assert values(YAML) == [
        {"kind": "A", "spec": {"items": [{"name": "one"}, {"name": "two", "keys": {"example.com/x": 1}}]}},
        {"kind": "B"},
    ]
    assert values(b"") == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ([], 2),
        (["kind"], 2),
        (["spec"], 3),
        (["spec", "items", 0], 5),
        (["spec", "items", 1, "name"], 6),
        (["spec", "items", 1, "keys", "example.com/x"], 8),
        (["spec", "items", 1, "missing", "deeper"], 6),
        (["spec", "items", 7], 4),
        (["kind", "deeper"], 2),
    ],
)
def test_the_line_of_a_missing_value_is_that_of_its_parent(path, line):
    assert read_documents(YAML, "file")[0].line(path) == line


def test_lines_count_from_the_top_of_the_file():
    assert read_documents(YAML, "file")[1].line(["kind"]) == 10


def test_json_may_have_tabs_exponents_and_escapes():
    content = b'{\n\t"kind": "a\\/b\\ud83d\\ude00",\n\t"number": 1e3,\n\t"big": 123456789012345678901\n}'
    (document,) = read_documents(content, "file")
    assert document.value == json.loads(content)
    assert document.line(["number"]) == 3


def test_yaml_may_begin_like_json():
    assert values(b"{kind: A, list: [1, two]}") == [{"kind": "A", "list": [1, "two"]}]


def test_times_are_strings_and_keys_become_strings():
    assert values(b"time: 2026-01-01\nwhen: 2026-01-01T00:00:00Z\n---\n1: a\n---\ntrue: b\nnull: c\n") == [
        {"time": "2026-01-01", "when": "2026-01-01T00:00:00Z"},
        {"1": "a"},
        {"true": "b", "null": "c"},
    ]


#: What sigs.k8s.io/yaml 1.6.0 makes of plain text.
PLAIN = [
    *[(text, True) for text in ("y", "Y", "yes", "YES", "true", "True", "on", "On")],
    *[(text, False) for text in ("n", "N", "no", "No", "false", "FALSE", "off", "OFF")],
    *[(text, None) for text in ("~", "null", "Null", "NULL")],
    *[(text, text) for text in ("yES", "oN", "t", "f", "nuLL", "_1", "+", ".", "1.2.3", "10:20:30:40", "1e", "0x")],
    *[(text, text) for text in ("2026-01-01", "2026-01-01T00:00:00Z", "._1e9", ".5_", "0b2", "0o8", "1e999", "-0x")],
    ("0", 0), ("-2", -2), ("+3", 3), ("1_000", 1000), ("0660", 432), ("0o17", 15), ("0O17", 15), ("0x1f", 31),
    ("0X1F", 31), ("-0x1F", -31), ("0b11", 3), ("0B11", 3), ("08", 8), ("-09", -9), ("1.0", 1), ("1e1", 10),
    ("1e3", 1000), ("1E2", 100), ("12e-1", 1.2), ("1.5", 1.5), (".5", 0.5), ("-.5e1", -5), ("5.", 5), ("-1E-2", -0.01),
    ("1_0.5", 10.5),
    (".6_5", 0.65), ("9223372036854775807", 2**63 - 1), ("18446744073709551615", 2**64 - 1),
    ("18446744073709551616", 2**64), ("-9223372036854775809", -(2**63)), ("1e20", 10**20), ("1e21", 1e21),
    ("0xffffffffffffffffff", "0xffffffffffffffffff"), ("9" * 5000, "9" * 5000), ("0x" + "f" * 5000, "0x" + "f" * 5000),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), PLAIN, ids=[text[:25] for text, _ in PLAIN])
def test_plain_text_is_read_as_kubernetes_reads_it(text, value):
    (found,) = values(f"a: {text}\nb: '{text}'\n".encode())
    assert (found["a"], type(found["a"])) == (value, type(value))
    assert found["b"] == text


def test_keys_are_read_like_values_and_become_text():
    assert values(b"y: 1\n0x10: 2\n1.0: 3\n1.5: 4\n") == [{"true": 1, "16": 2, "1": 3, "1.5": 4}]


def test_tags_give_a_value_its_type():
    assert values(b"[!!str y, !!str 1, !!int 0x10, !!float 1, !!bool n, !!null ~]") == [["y", "1", 16, 1, False, None]]


def test_references_and_merges_are_resolved():
    assert values(b"base: &b {a: 1}\nused: *b\nmerged:\n  <<: *b\n  c: 2\n") == [
        {"base": {"a": 1}, "used": {"a": 1}, "merged": {"a": 1, "c": 2}}
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a: 1\nb: [1,\n c: }\n", "line 3, column 5: "),
        (b"a: 1\nb: 2\na: 3\n", "line 3, column 1: key 'a' is given twice"),
        (b'{"a": 1,\n "a": 2}', "line 2, column 2: key 'a' is given twice"),
        (b"a: &x\n  b: *x\n", "line 2, column 6: refers to itself"),
        (b"a: !!binary aGk=\n", "line 1, column 4: !!binary has no JSON form"),
        (b"a: !secret x\n", "line 1, column 4: !secret has no JSON form"),
        (b"a: .nan\n", "line 1, column 4: .nan is not a JSON number"),
        (b'{"NaN":\n NaN}', "line 2, column 2: NaN is not a JSON number"),
        (b'{"a": 1e999}', "line 1, column 7: 1e999 is too large for a number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "line 1, column 7: a number has at most 1000 digits, this one 5000"),
        (b"a:\n\tb: 1\n", "line 2, column 1: use spaces for indentation, not tabs"),
        (b"[", "line 1, column 2: "),
        (b"a: !!int x", "line 1, column 4: 'x' is not of type int"),
        (b"a: !!int y", "line 1, column 4: 'y' is not of type int"),
        (b"a: !!bool 1", "line 1, column 4: '1' is not of type bool"),
        (b"a: !!map x", "line 1, column 4: !!map has no JSON form"),
        (b"a: !!set {x}", "line 1, column 4: !!set has no JSON form"),
        (b"a: &x 1\nb: &x 2\n", "line 2, column 4: anchor 'x' is given twice"),
        (b"a: &x [1]\n*x : 2\n", "line 2, column 1: a key must be a string"),
        (b"<<: 3\n", "line 1, column 5: << needs a mapping or a list of mappings"),
        (b"1: a\n'1': b\n", "line 2, column 1: key '1' is given twice"),
        (b"? [a]\n: 1\n", "line 1, column 3: a key must be a string"),
        (b"a: 1\nb: \xff\n", "line 2: not UTF-8 text"),
        ("kind: A\n".encode("utf-16"), "line 1: the text is UTF-16, save it as UTF-8"),
        (b"a: 1\nb: \x01\n", "line 2, column 4: control character '\\x01' is not allowed"),
        (b"a: " + b"[" * 200 + b"]" * 200, "line 1, column "),
        (b"[" * 100_000, "nested too deeply"),
        (b"a: *nowhere\n", "line 1, column 4: found undefined alias"),
    ],
)
def test_bad_text_is_refused_with_its_position(content, problem):
    with pytest.raises(InvalidObjectError) as refused:
        read_documents(content, "some/file.yaml")
    assert refused.value.subject == "some/file.yaml"
    assert refused.value.problems[0].startswith(problem)


@pytest.mark.parametrize("begin", [b"[", b"a: [", b"- ", b"{a: ", b"? "])
def test_no_depth_exhausts_the_stack(begin):
    with pytest.raises(InvalidObjectError):
        read_documents(begin * 200_000, "file")


def test_own_keys_and_the_first_merged_mapping_win():
    content = b"a: &a {x: 1, w: 1}\nb: &b {w: 2, z: 2}\nc: {<<: [*a, *b], z: 3}\nd: <<\n"
    assert values(content)[0]["c"] == {"x": 1, "w": 1, "z": 3}
    assert values(content)[0]["d"] == "<<"


def test_a_byte_order_mark_and_windows_line_ends_are_accepted():
    assert values(b"\xef\xbb\xbfa: 1\r\nb: |\r\n  x\r\n  y\r\n") == [{"a": 1, "b": "x\ny\n"}]
    assert values(b'\xef\xbb\xbf{"a":\r\n\t1}') == [{"a": 1}]


def test_an_unpaired_surrogate_is_replaced():
    assert values(b'{"a": "\\ud800x", "b": "\\ud83d\\ude00"}') == [{"a": "\ufffdx", "b": "\U0001f600"}]


def test_pyyaml_without_libyaml_reads_the_same():
    with_it = values(YAML)
    assert list(yaml_values.values(YAML.decode(), yaml.SafeLoader)) == with_it


def test_references_cannot_multiply_without_limit():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(InvalidObjectError, match="references repeat more than"):
        read_documents("\n".join(lines).encode(), "file")


@pytest.mark.parametrize("content", [b'{"a": [\n1,\n{"b": 2}]}', b"a:\n- 1\n- b: 2\n"])
def test_lines_are_computed_only_when_needed(content, monkeypatch):
    (document,) = read_documents(content, "file")
    monkeypatch.setattr(documents.yaml, "compose_all", lambda *_, **__: pytest.fail("read"))
    assert document.value == {"a": [1, {"b": 2}]}
    assert document.has_lines
    monkeypatch.undo()
    assert document.line(["a", 1, "b"]) == 3


def test_a_document_without_a_file_has_no_lines():
    assert not Document({"a": 1}).has_lines
    assert Document({"a": 1}).line(["a"]) == 1


def test_the_objects_of_a_list_come_with_their_path():
    inner = {"kind": "PodList", "items": [{"a": 1}]}
    value = {"kind": "List", "items": [{"b": 2}, inner, None]}
    assert list(objects(value)) == [(("items", 0), {"b": 2}), (("items", 1, "items", 0), {"kind": "Pod", "a": 1})]
    assert list(objects(None)) == []
    assert list(objects({"kind": "List", "items": 3})) == [((), {"kind": "List", "items": 3})]
