"""`dra-sdk completion`: the shell itself completes with the printed script."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.commands import runner

COMPLETE = """
source "$1"
shift
function=$(complete -p dra-sdk | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
$function dra-sdk "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (("sim",), {"simulate"}),
        (("explain", "--cont"), {"--context"}),
        (("top", "--output", ""), {"table", "json"}),
        (("completion", "b"), {"bash"}),
    ],
)
def test_bash_completes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], completed: set[str]
) -> None:
    printed = runner(capsys)("completion", "bash")
    assert printed.status == 0, printed.err
    (tmp_path / "script").write_text(printed.out)
    command = ["bash", "-c", COMPLETE, "bash", str(tmp_path / "script"), "dra-sdk", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50)
    assert set(done.stdout.split()) == completed


@pytest.mark.parametrize("shell", ["zsh", "tcsh", "fish"])
def test_other_shells_have_a_script_with_all_commands(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    printed = runner(capsys)("completion", shell)
    assert printed.status == 0
    assert all(word in printed.out for word in ("simulate", "conformance", "dra-sdk"))


def test_an_unknown_shell_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    result = runner(capsys)("completion", "bsh")
    assert (result.status, result.out) == (2, "")
    assert "'bsh' is not one of bash, zsh, tcsh, fish; did you mean bash?" in result.err
