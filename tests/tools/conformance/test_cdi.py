from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dra_sdk.errors import DraError
from dra_sdk.tools.conformance.cdi import Cdi, View

EDITS = {
    "env": ["A=1", "B=2"],
    "deviceNodes": [{"path": "/dev/gpu", "hostPath": "/dev/host-gpu"}],
    "mounts": [{"hostPath": "/lib/gpu", "containerPath": "/usr/lib/gpu"}],
    "hooks": [{"hookName": "createRuntime", "path": "/bin/hook"}],
}


@pytest.fixture
def cdi(tmp_path: Path) -> Cdi:
    (tmp_path / "cdi").mkdir()
    (tmp_path / "host/dev").mkdir(parents=True)
    os.mkfifo(tmp_path / "host/dev/host-gpu")
    return Cdi([tmp_path / "static", tmp_path / "cdi"], tmp_path / "host")


def write(cdi: Cdi, name: str, **device: object) -> None:
    spec = {"cdiVersion": "0.5.0", "kind": "a.example.com/gpu", "devices": [{"name": "0", **device}]}
    (cdi.directory / name).write_text(json.dumps(spec))


def test_files_of_all_directories(cdi: Cdi) -> None:
    write(cdi, "one.json", containerEdits=EDITS)
    (cdi.directory / "other.txt").touch()
    assert [path.name for path in cdi.paths()] == ["one.json"]
    assert list(cdi.files()) == cdi.paths()


def test_what_a_container_gets(cdi: Cdi) -> None:
    write(cdi, "one.json", containerEdits=EDITS)
    assert cdi.unresolved(["a.example.com/gpu=0", "a.example.com/gpu=1"]) == ["a.example.com/gpu=1"]
    view = cdi.view(["a.example.com/gpu=0"])
    assert view == View(("A", "B"), ("/dev/gpu",), ("/usr/lib/gpu",), 1)
    assert view.size == (2, 1, 1, 1)
    assert not view.empty
    assert View.of({"ociVersion": "1"}).empty


def test_device_nodes_are_looked_up_under_the_hosts_root(cdi: Cdi, tmp_path: Path) -> None:
    (tmp_path / "host/dev/host-gpu").unlink()
    write(cdi, "one.json", containerEdits=EDITS)
    with pytest.raises(DraError, match="host-gpu"):
        cdi.container(["a.example.com/gpu=0"])
    assert cdi.on_host("/dev/x") == tmp_path / "host/dev/x"
