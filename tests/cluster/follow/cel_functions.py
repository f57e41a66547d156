"""Functions and macros of CEL that a release has in selectors of devices, beside those of `dra_sdk.cel`.

A server does not list its functions. So each quoted identifier in the sources of its CEL libraries is a candidate, and
both compilers say whether it is declared: a call without arguments of a function that is declared has no matching
overload, and any other name is an undeclared reference. A macro is expanded before that check, so a call with as many
arguments as the macro takes never is an undeclared reference to its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dra_sdk.tools.scheduling.cel_validation import cel_compiler
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import validate
from tests.cluster.differential.api import Requests, collection
from tests.cluster.follow.report import Difference
from tests.cluster.harness.errors import HarnessError

JSON = dict[str, Any]
MODULES: Final = ("k8s.io/apiserver", "k8s.io/dynamic-resource-allocation", "github.com/google/cel-go")
"""The Go modules that declare functions."""
_FOLDERS: Final = (
    "cel",
    "ext",
    "parser",
    "common/stdlib",
    "common/overloads",
    "common/operators",
    "pkg/cel/library",
    "pkg/cel/environment",
)
_NAME: Final = re.compile(r'"([A-Za-z]\w*(?:\.[A-Za-z]\w*)?)"')
_MACRO: Final = re.compile(r'(?:Receiver|Global)(?:VarArg)?Macro\(\s*(?:operators\.)?"?(\w+)"?\s*(?:,\s*(\d+)\s*)?,')
_CONSTANT: Final = re.compile(r'^\s*(?:const\s+)?(\w+)\s*=\s*"([\w.]+)"', re.MULTILINE)
_WORDS: Final = frozenset(
    {
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    }
)
"""Reserved words of CEL, which can be no function."""
_OF_AUTHORIZERS: Final = frozenset(
    {
        "allowed",
        "check",
        "error",
        "errored",
        "fieldSelector",
        "group",
        "labelSelector",
        "name",
        "path",
        "reason",
        "resource",
        "serviceAccount",
        "subresource",
    }
)
"""Functions of the authorizer, which every environment of the API server declares and selectors have no value for."""
_TARGETS: Final = ("[0]", "{0: 0}", "optional.of(0)", "cel", "math", "proto")
_ARGUMENTS: Final = ("a", "b", "c", "d")
_AT_ONCE: Final = 32
"""A DeviceClass has at most so many selectors."""
_FIELD: Final = re.compile(r"spec\.selectors\[(\d+)\]")

Judge = Callable[[Sequence[str]], list[str]]
"""Compiles at most 32 expressions; returns the problem of each, empty if it has none."""


@dataclass(frozen=True, order=True)
class Macro:
    """A macro of the sources.

    name: its name.
    arguments: how many it takes.
    """

    name: str
    arguments: int


@dataclass(frozen=True)
class Candidates:
    """What the sources mention.

    functions: names that may be functions.
    macros: the macros that some environment has.
    """

    functions: frozenset[str]
    macros: frozenset[Macro]


def candidates(sources: Iterable[str]) -> Candidates:
    """Returns what Go sources mention."""
    functions: set[str] = set()
    macros: set[Macro] = set()
    texts = list(sources)
    constants = {name: value for text in texts for name, value in _CONSTANT.findall(text)}
    for text in texts:
        functions.update(_NAME.findall(text))
        for name, count in _MACRO.findall(text):
            plain = constants.get(name, name).rpartition(".")[2]
            macros.update(Macro(plain, number) for number in ([int(count)] if count else range(1, len(_ARGUMENTS) + 1)))
    return Candidates(frozenset(functions - _WORDS), frozenset(macros))


def read_sources(folders: Iterable[Path]) -> Iterator[str]:
    """Yields the Go sources of modules that declare functions, without their tests.

    Raises HarnessError if a module has none, because then functions would be missed in silence.
    """
    for module in folders:
        files = [path for folder in _FOLDERS for path in sorted((module / folder).glob("*.go"))]
        if not files:
            raise HarnessError(f"{module.name}: no Go sources in {', '.join(_FOLDERS)}")
        yield from (path.read_text() for path in files if not path.name.endswith("_test.go"))


def declared_functions(names: Iterable[str], judge: Judge) -> set[str]:
    """Returns the names that a compiler knows as functions."""
    ordered = sorted(names)
    said = _judged([f"{name}()" for name in ordered], judge)
    return {name for name, text in zip(ordered, said, strict=True) if not text or f"overload for '{name}'" in text}


def declared_macros(macros: Iterable[Macro], judge: Judge) -> set[Macro]:
    """Returns the macros that a compiler expands."""
    calls = [(macro, target) for macro in sorted(macros) for target in _TARGETS]
    said = _judged([_call(macro, target) for macro, target in calls], judge)
    return {
        macro
        for (macro, target), text in zip(calls, said, strict=True)
        if not any(f"'{name}'" in text for name in (macro.name, f"{target}.{macro.name}", target))
    }


def compare(found: Candidates, server: Judge, ours: Judge, known: Iterable[str] = ()) -> Iterator[Difference]:
    """Compares both compilers; `known` has further names, so that a function which is gone is noticed too."""
    names = {*found.functions, *known} - _OF_AUTHORIZERS
    yield from _different("CEL function", declared_functions(names, server), declared_functions(names, ours), str)
    in_server, in_ours = declared_macros(found.macros, server), declared_macros(found.macros, ours)
    yield from _different("CEL macro", in_server, in_ours, lambda macro: f"{macro.name}, {macro.arguments} arguments")


def judge_of_server(requests: Requests) -> Judge:
    """Returns the compiler of a server, asked by DeviceClasses that it does not store (dryRun)."""

    def judge(expressions: Sequence[str]) -> list[str]:
        status, said = requests.send("POST", f"{collection('DeviceClass')}?dryRun=All", _device_class(expressions))
        if status not in (201, 422):
            raise HarnessError(f"POST {collection('DeviceClass')}: {status}: {said.get('message', said)}")
        causes = (said.get("details") or {}).get("causes") or []
        return _by_place(((cause.get("field", ""), cause.get("message", "")) for cause in causes), len(expressions))

    return judge


def our_judge(profile: ServerProfile) -> Judge:
    """Returns the compiler of this package."""
    compiler = cel_compiler(profile)

    def judge(expressions: Sequence[str]) -> list[str]:
        problems = validate(_device_class(expressions), profile=profile, compile_cel=compiler)
        return _by_place(((problem.field, problem.detail) for problem in problems), len(expressions))

    return judge


def _call(macro: Macro, target: str) -> str:
    return f"{target}.{macro.name}({', '.join(_ARGUMENTS[: macro.arguments])})"


def _judged(expressions: Sequence[str], judge: Judge) -> list[str]:
    pieces = (expressions[start : start + _AT_ONCE] for start in range(0, len(expressions), _AT_ONCE))
    return [text for piece in pieces for text in judge(piece)]


def _by_place(problems: Iterable[tuple[str, str]], count: int) -> list[str]:
    found: dict[int, list[str]] = {}
    for field, text in problems:
        if (place := _FIELD.match(field)) is None:
            raise HarnessError(f"a DeviceClass with selectors alone is refused for {field}: {text}")
        found.setdefault(int(place[1]), []).append(text)
    return ["\n".join(found.get(index, [])) for index in range(count)]


def _device_class(expressions: Sequence[str]) -> JSON:
    selectors = [{"cel": {"expression": text}} for text in expressions]
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "functions"}}
    return head | {"spec": {"selectors": selectors}}


def _different(area: str, server: set[Any], ours: set[Any], show: Callable[[Any], str]) -> Iterator[Difference]:
    for each in sorted(server - ours):
        yield Difference(area, show(each), "new: this package does not know it")
    for each in sorted(ours - server):
        yield Difference(area, show(each), "gone: the release does not know it")


def module_folders(go_list: Callable[[str], Mapping[str, Any]]) -> list[Path]:
    """Returns the folders of `MODULES`; `go_list` gives what `go list -m -json` says of one."""
    return [Path(go_list(module)["Dir"]) for module in MODULES]
