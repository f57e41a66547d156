"""The command line."""

from __future__ import annotations

import pytest

from tests.cluster.harness import HarnessError
from tests.cluster.harness.__main__ import flag, gates, main


def test_flags_of_the_environment(monkeypatch):
    monkeypatch.delenv("ALPHA", raising=False)
    assert flag("ALPHA") is False
    for value, expected in (("1", True), ("True", True), ("0", False), ("", False)):
        monkeypatch.setenv("ALPHA", value)
        assert flag("ALPHA") is expected
    monkeypatch.setenv("ALPHA", "perhaps")
    with pytest.raises(HarnessError, match="ALPHA=perhaps"):
        flag("ALPHA")


def test_gates_of_the_environment():
    assert gates("") == {}
    assert gates("A=true, B=false") == {"A": True, "B": False}
    with pytest.raises(HarnessError, match="'A=maybe'"):
        gates("A=maybe")


def test_status_of_a_cluster_that_is_not_there(capsys):
    assert main(["status", "--name", "never-made"]) == 1
    assert capsys.readouterr().out == "cluster 'never-made' is down\n"


def test_error_is_one_message_and_a_failure(capsys):
    assert main(["status", "--name", "Not A Name"]) == 1
    assert capsys.readouterr().err.startswith("error: cluster name 'Not A Name'")
