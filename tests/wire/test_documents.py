from __future__ import annotations

import json

import pytest

from dra_sdk.errors import InvalidObjectError
from dra_sdk.wire.documents import read_documents

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


def test_documents_in_their_order():
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
def test_the_line_of_a_value_or_of_what_is_nearest_above(path, line):
    assert read_documents(YAML, "file")[0].line(path) == line


def test_lines_count_from_the_top_of_the_file():
    assert read_documents(YAML, "file")[1].line(["kind"]) == 10


def test_json_with_tabs_exponents_and_escapes():
    content = b'{\n\t"kind": "a\\/b\\ud83d\\ude00",\n\t"number": 1e3,\n\t"big": 123456789012345678901\n}'
    (document,) = read_documents(content, "file")
    assert document.value == json.loads(content)
    assert document.line(["number"]) == 3


def test_yaml_that_begins_like_json():
    assert values(b"{kind: A, list: [1, two]}") == [{"kind": "A", "list": [1, "two"]}]


def test_times_stay_text_and_keys_become_text():
    assert values(b"time: 2026-01-01\nwhen: 2026-01-01T00:00:00Z\n---\n1: a\n---\ntrue: b\nnull: c\n") == [
        {"time": "2026-01-01", "when": "2026-01-01T00:00:00Z"},
        {"1": "a"},
        {"true": "b", "null": "c"},
    ]


def test_numbers_as_kubernetes_reads_them():
    content = b"[1, -2, 0660, 0o17, 0x1f, 1_000, 1.5, .5, 1e3, -1E-2, 10:20:30:40:50:55, 1.2.3, 08, '1', 0]"
    assert values(b"a: " + content) == [
        {"a": [1, -2, 432, 15, 31, 1000, 1.5, 0.5, 1000.0, -0.01, "10:20:30:40:50:55", "1.2.3", 8.0, "1", 0]}
    ]


def test_references_and_merges():
    assert values(b"base: &b {a: 1}\nused: *b\nmerged:\n  <<: *b\n  c: 2\n") == [
        {"base": {"a": 1}, "used": {"a": 1}, "merged": {"a": 1, "c": 2}}
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a: 1\nb: [1,\n c: }\n", "line 3, column 5: "),
        (b"a: 1\nb: 2\na: 3\n", "line 3, column 1: key 'a' is given twice"),
        (b'{"a": 1,\n "a": 2}', "line 2, column 2: key 'a' is given twice"),
        (b"a: &x\n  b: *x\n", "line 1, column 4: refers to itself"),
        (b"a: !!binary aGk=\n", "line 1, column 4: !!binary has no place in JSON"),
        (b"a: !secret x\n", "line 1, column 4: !secret has no place in JSON"),
        (b"a: .nan\n", "line 1, column 4: .nan is no JSON number"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b"? [a]\n: 1\n", "line 1, column 3: a key must be a string"),
        (b"a: 1\nb: \xff\n", "line 2: not UTF-8 text"),
        (b"a: 1\nb: \x01\n", "line 2: special characters are not allowed"),
        (b"a: " + b"[" * 200 + b"]" * 200, "line 1, column "),
        (b"[" * 100_000, "nested too deeply"),
        (b"a: *nowhere\n", "line 1, column 4: found undefined alias"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(content, problem):
    with pytest.raises(InvalidObjectError) as refused:
        read_documents(content, "some/file.yaml")
    assert refused.value.subject == "some/file.yaml"
    assert refused.value.problems[0].startswith(problem)


def test_references_cannot_blow_a_file_up():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(InvalidObjectError, match="references repeat more than"):
        read_documents("\n".join(lines).encode(), "file")
