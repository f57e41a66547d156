"""The part of Go's template language that the chart uses. Each expectation is what Go's `text/template` prints."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dra_sdk.tools.manifests.go_template import Renderer, Template, TemplateError

FUNCTIONS = {"add": lambda one, other: one + other, "not": lambda value: not value, "upper": str.upper}
DATA: dict[str, Any] = {
    "a": {"b": "text"},
    "empty": "",
    "items": ["x", "y"],
    "map": {"two": 2, "one": 1},
    "no": False,
    "none": None,
    "number": 7,
}


def render(text: str) -> str:
    template = Template("one.yaml", text)
    return Renderer([template], FUNCTIONS).render(template, DATA)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("{{ .a.b }}", "text"),
        ("{{ $.a.b }}", "text"),
        ("{{ .number }} {{ .no }} {{ .a.missing }}.", "7 false ."),
        ('{{ "a\\"b" }}{{ `c"` }}', 'a"bc"'),
        ("a  {{- .number -}}  b", "a7b"),
        ("a  {{ .number }}  b", "a  7  b"),
        ("a {{/* a comment */}} b", "a  b"),
        ("a {{- /* a comment */ -}} b", "ab"),
        ("{{ if .a }}yes{{ else }}no{{ end }}", "yes"),
        ("{{ if .empty }}yes{{ else }}no{{ end }}", "no"),
        ("{{ if .none }}1{{ else if .number }}2{{ else }}3{{ end }}", "2"),
        ("{{ if .none }}1{{ else if .no }}2{{ else }}3{{ end }}", "3"),
        ("{{ range .items }}<{{ . }}>{{ end }}", "<x><y>"),
        ("{{ range $n, $each := .items }}{{ $n }}{{ $each }}{{ end }}", "0x1y"),
        ("{{ range $key, $value := .map }}{{ $key }}={{ $value }} {{ end }}", "one=1 two=2 "),
        ("{{ range .none }}x{{ else }}nothing{{ end }}", "nothing"),
        ("{{ range .items }}{{ $.number }}{{ end }}", "77"),
        ("{{ with .a }}{{ .b }}{{ end }}", "text"),
        ("{{ with .none }}{{ .b }}{{ else }}{{ .number }}{{ end }}", "7"),
        ("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}", "2"),
        ("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ end }}{{ $x }}", "1"),
        ("{{ add 1 2 }}", "3"),
        ("{{ 2 | add 1 }}", "3"),
        ("{{ add (add 1 2) 3 }}", "6"),
        ("{{ .a.b | upper }}", "TEXT"),
        ('{{ define "part" }}<{{ .b }}>{{ end }}{{ include "part" .a }}', "<text>"),
    ],
)
def test_what_go_prints(text: str, expected: str) -> None:
    assert render(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\n{{ lower .a }}", "line 2: function 'lower' is not supported"),
        ("{{ .none.b }}", "line 1: `.none.b`: there is no map that could have 'b'"),
        ("{{ $x }}", "line 1: variable $x is not declared"),
        ("{{ $x = 1 }}", "line 1: variable $x is not declared"),
        ("{{ if .a }}", "line 1: `if` without `end`"),
        ("a\n{{ end }}", "line 2: `end` without a block"),
        ('{{ template "x" }}', "line 1: `template` is not supported"),
        ('{{ include "x" . }}', "line 1: include of 'x', which no template defines"),
        ("{{ .a }}", "line 1: a map or a list cannot be printed; use toYaml"),
        ("{{ .number 1 }}", "line 1: `.number` is no function"),
        ("{{ (add 1 2 }}", "line 1: `(` without `)`"),
        ("{{ add 1 2) }}", "line 1: cannot read `)`"),
        ("{{ ? }}", "line 1: cannot read `?`"),
        ("{{ }}", "line 1: an empty action"),
        ("{{ range .items }}{{ else if .a }}{{ end }}", "line 1: only `else` and `else if` are supported"),
    ],
)
def test_what_is_not_supported_or_wrong_is_named_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(TemplateError, match=f"^{re.escape(f'template one.yaml, {problem}')}"):
        render(text)


def test_an_error_in_a_definition_names_the_file_that_has_it() -> None:
    helpers = Template("helpers.tpl", '\n{{ define "part" }}\n{{ lower . }}{{ end }}')
    page = Template("page.yaml", '{{ include "part" . }}')
    with pytest.raises(TemplateError, match=r"^template helpers\.tpl, line 3: function 'lower'"):
        Renderer([helpers, page], {}).render(page, {})
