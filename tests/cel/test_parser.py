from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk.cel import CelCompileError, DeviceView, compile  # noqa: A004
from dra_sdk.cel.parser import MAX_DEPTH, parse
from dra_sdk.cel.syntax import CallNode, Expr, Ident, ListNode, Literal, MapNode, Select


def shown(node: Expr) -> str:
    """The tree with brackets around everything."""
    if isinstance(node, Literal):
        return repr(node.value)
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select):
        return f"{shown(node.operand)}.{node.name}"
    if isinstance(node, CallNode):
        args = ", ".join(map(shown, node.args))
        return f"{shown(node.target)}.{node.function}({args})" if node.target else f"{node.function}({args})"
    if isinstance(node, ListNode):
        return f"[{', '.join(('?' * (i in node.optional)) + shown(item) for i, item in enumerate(node.items))}]"
    assert isinstance(node, MapNode)
    return "{" + ", ".join(f"{shown(key)}: {shown(value)}" for key, value in node.entries) + "}"


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        ("a + b * c", "_+_(a, _*_(b, c))"),
        ("a - b - c", "_-_(_-_(a, b), c)"),
        ("a < b == c", "_==_(_<_(a, b), c)"),
        ("a || b && c", "_||_(a, _&&_(b, c))"),
        ("a ? b : c ? d : e", "_?_:_(a, b, _?_:_(c, d, e))"),
        ("a in b", "@in(a, b)"),
        ("!a.b", "!_(a.b)"),
        ("!!a", "a"),
        ("---a", "-_(a)"),
        ("-1", "-1"),
        ("- 1", "-1"),
        ("-(1)", "-_(1)"),
        ("---1", "-_(1)"),
        ("1 -1", "_-_(1, 1)"),
        ("-1.5", "-1.5"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("a.b.c(d)[e]", "_[_](a.b.c(d), e)"),
        (".a", "a"),
        ("f()", "f()"),
        ("a.?b[?c]", "_[?_](_?._(a, 'b'), c)"),
        ("[1, ?a,]", "[1, ?a]"),
        ("{a: b, ?c: d,}", "{a: b, c: d}"),
        ("(a)", "a"),
        ("[,]", "[]"),
        ("{,}", "{}"),
        ("a ? b : c || d && e + f * g", "_?_:_(a, b, _||_(c, _&&_(d, _+_(e, _*_(f, g)))))"),
        ("-a.b * !c[d] + 1", "_+_(_*_(-_(a.b), !_(_[_](c, d))), 1)"),
        ("a < b + c in d", "@in(_<_(a, _+_(b, c)), d)"),
        ("a || b || c && d && e || f", "_||_(_||_(a, b), _||_(_&&_(_&&_(c, d), e), f))"),
    ],
)
def test_precedence(source: str, tree: str):
    assert shown(parse(source)) == tree


@pytest.mark.parametrize(
    ("source", "line", "column", "problem"),
    [
        ("", 1, 1, "found the end of the expression, expected an expression"),
        ("a &&", 1, 5, "found the end of the expression, expected an expression"),
        ("(a", 1, 3, "expected ')'"),
        ("a b", 1, 3, "found 'b', expected the end of the expression"),
        ("a.\n  1", 2, 3, "found 1, expected a name"),
        ("[1, 2", 1, 6, "expected ']'"),
        ("{1}", 1, 3, "expected ':'"),
        ("f(1,)", 1, 5, "expected an argument"),
        ("a ? b", 1, 6, "expected ':'"),
        ("if", 1, 1, "reserved identifier: if"),
        ("a.in", 1, 3, "expected a name"),
        ("9223372036854775808", 1, 1, "invalid int literal"),
        ("1" * 5000, 1, 1, "invalid int literal"),
        ("Foo{a: 1}", 1, 4, "no message type"),
        ("google.protobuf.Int64Value{value: 1}", 1, 27, "this SDK cannot make messages such as google.protobuf.Int64"),
        ("a ? b ? c : d : e", 1, 7, "found '?', expected ':'"),
        ("[1,,]", 1, 4, "expected an expression"),
        ("(,)", 1, 2, "expected an expression"),
        ("!-a", 1, 2, "expected an expression"),
        ("..a", 1, 2, "expected a name"),
        ("`a`", 1, 1, "expected an expression"),
        ("a.`b`()", 1, 6, "expected the end of the expression"),
        ("rb''", 1, 3, "expected the end of the expression"),
    ],
)
def test_what_is_no_expression(source: str, line: int, column: int, problem: str):
    with pytest.raises(CelCompileError) as caught:
        parse(source)
    assert problem in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    ("before", "inside", "after", "most"),
    [
        ("(", "1", ")", 249),
        ("[", "", "]", 250),
        ("{1: ", "1", "}", 249),
        ("f(", "1", ")", 249),
        ("1 + (", "1", ")", 124),
        ("1 == (", "1", ")", 124),
        ("1 + 1 * (", "1", ")", 83),
        ("true ? true : ", "true", "", 249),
        ("", "1", " + 1", 250),
        ("", "1", " == 1", 250),
        ("", "a", ".b", 250),
        ("", "a", "[0]", 250),
        ("", "a", ".b()", 250),
    ],
)
def test_nesting_has_the_limits_of_cel_go(before: str, inside: str, after: str, most: int):
    parse(before * most + inside + after * most)
    with pytest.raises(CelCompileError, match="nested deeper than 250 levels"):
        parse(before * (most + 1) + inside + after * (most + 1))


def test_what_a_tree_may_have_after_macros_is_limited():
    parse("[1].all(x, " * 140 + "true" + ")" * 140)
    with pytest.raises(CelCompileError, match=f"more than {MAX_DEPTH} levels once macros are expanded"):
        parse("[1].all(x, " * 160 + "true" + ")" * 160)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 240 + "true" + ")" * 240,
        "[" * 200 + "device.driver" + "]" * 200 + " == []",
        "{'a': " * 200 + "device.driver" + "}" * 200 + " == {}",
        "device.driver == '' ? true : " * 130 + "true",
        " + ".join(["device.driver"] * 200) + " == ''",
        "dyn(" * 200 + "device.driver" + ")" * 200 + " == ''",
        "[1].exists(x, " * 100 + "true" + ")" * 100,
    ],
)
def test_deep_expressions_go_through_every_stage(expression: str):
    selector = compile(expression)
    assert selector.max_cost >= 0
    assert isinstance(selector.matches(DeviceView("d.example.com")), bool)


def test_names_in_backticks_need_1_37():
    assert shown(parse("a.`b-c/d e`")) == "a.b-c/d e"
    assert shown(parse("a.?`b`")) == "_?._(a, 'b')"
    with pytest.raises(CelCompileError, match=r"names in backticks need Kubernetes 1\.37"):
        parse("a.`b`", since_1_37=False)


def test_long_chains_of_logic_are_no_deep_nesting():
    assert compile(" && ".join(["true"] * 1000)).max_cost == 0


@given(st.text(alphabet="ab1. ()[]{}?:!-+&|<>=,'\"\\\n", max_size=40))
def test_any_text_is_an_expression_or_a_compile_error(text: str):
    with suppress(CelCompileError):
        assert isinstance(parse(text), Expr)
