"""The command line: files before and after flags, errors in one line, numbers with their limits."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from dra_sdk.cli.arguments import Parser, feature_gates, from_text, positive_seconds, whole_number
from dra_sdk.cli.main import COMMANDS
from tests.cli.commands import EXAMPLES, Run, runner

NODES = EXAMPLES / "nodes"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_files_may_come_before_and_after_flags(run: Run) -> None:
    classes, case = EXAMPLES / "classes.yaml", EXAMPLES / "gpu-use-cases/03-several-gpu-types.yaml"
    expected = run("simulate", classes, NODES / "gpu-mixed.yaml", case)
    assert expected.status == 0
    assert (
        run("simulate", classes, "--server-version", "1.36", NODES / "gpu-mixed.yaml", "-o", "table", case) == expected
    )
    checked = run("validate", classes, "--server-version", "1.36", case)
    assert "checked for Kubernetes 1.36; 0 problems" in checked.err
    assert checked == run("validate", classes, case, "--server-version", "1.36")
    both = run("top", NODES / "gpu-mixed.yaml", "--all", NODES / "gpu-rails.yaml")
    assert both == run("top", "--all", NODES / "gpu-mixed.yaml", NODES / "gpu-rails.yaml")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("discover", "cpu", "--host"), "dra-sdk discover: unrecognized arguments: --host; did you mean --host-root?"),
        (("discover", "cpu", "more"), "dra-sdk discover: unrecognized arguments: more"),
        (("simulate", "a.yaml", "--driver=cpu", "--fixtur=x"), "--fixtur=x; did you mean --fixture?"),
        (("top", "--nod", "n"), "dra-sdk top: unrecognized arguments: --nod; did you mean --node?"),
        (("gpu", "list"), "dra-sdk gpu: argument COMMAND: 'list' is not one of top"),
        (("discovr",), "; did you mean discover?"),
        (("--verbose", "run", "cpu"), "dra-sdk: unrecognized arguments: --verbose"),
        (("validate",), "dra-sdk validate: the following arguments are required: FILE"),
        ((), "dra-sdk: the following arguments are required: COMMAND"),
        (("run", "cpu", "--drain-seconds", "soon"), "argument --drain-seconds: 'soon': must be a number of seconds"),
        (("run", "cpu", "--http-address", "8080"), "argument --http-address: '8080': must be host:port or :port"),
        (("top", "--interval", "0"), "argument --interval: '0': must be a number of seconds above 0"),
        (("simulate", "--driver", "cpu", "--node", "A_b"), "argument --node: 'A_b': must be a DNS subdomain"),
    ],
)
def test_wrong_usage_is_one_line_with_status_2(run: Run, words: tuple[str, ...], said: str) -> None:
    result = run(*words)
    assert (result.status, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert said in line
    assert line.endswith("--help`)")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_of_every_command_has_a_help_text(command: str, run: Run) -> None:
    arguments = run(command, "--help").out.partition("\n\n")[2].splitlines()
    listed = [(number, line) for number, line in enumerate(arguments) if re.match(r" {2}(?:-|\w+(?: {2,}|$))", line)]
    assert listed
    for number, line in listed:
        following = arguments[number + 1] if number + 1 < len(arguments) else ""
        assert re.search(r"\S {2,}\S", line) or following.startswith(" " * 20), line


def test_the_help_explains_the_exit_status(run: Run) -> None:
    said = " ".join(run("--help").out.split())
    assert "0 it is done, and the answer is yes; 1 it is done, and the answer is no; 2 it could not be done" in said


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "x", "²"])
def test_a_whole_number_has_a_minimum(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}': must be a whole number, 1 or more"):
        whole_number(1)(text)
    assert whole_number(1)("1") == 1


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "soon"])
def test_seconds_are_positive_and_finite(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}': must be a number of seconds above 0"):
        positive_seconds(text)
    assert positive_seconds("0.5") == 0.5


def test_the_message_of_a_type_is_reported() -> None:
    def even(text: str) -> int:
        if int(text) % 2:
            raise ValueError("must be even")
        return int(text)

    parser = Parser(exit_on_error=False)
    parser.add_argument("--pairs", type=from_text(even))
    assert parser.parse_args(["--pairs", "4"]).pairs == 4
    with pytest.raises(argparse.ArgumentError, match="argument --pairs: '3': must be even"):
        parser.parse_args(["--pairs", "3"])


def test_standard_input_may_come_anywhere_among_the_files() -> None:
    parser = Parser()
    parser.add_files("files")
    parser.add_argument("--all", action="store_true")
    assert parser.parse_args(["a", "--all", "-", "b"]).files == ["a", "-", "b"]
    assert parser.parse_args([]).files == []
    assert parser.parse_args(["--all", str(Path("x"))]).files == ["x"]


def test_every_feature_gate_of_kubernetes_is_accepted() -> None:
    assert feature_gates("DRAWorkloadResourceClaims=true,WatchList=false") == {
        "DRAWorkloadResourceClaims": True,
        "WatchList": False,
    }
    unknown = "1.34 to 1.37 have no feature gate DRAExtendedResources; did you mean DRAExtendedResource?"
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(unknown)):
        feature_gates("DRAExtendedResources=true")
