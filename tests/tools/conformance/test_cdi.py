from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dra_sdk.errors import DraError
from dra_sdk.tools.conformance.cdi import CdiView, InjectedEdits

EDITS = {
    "env": ["A=1", "B=2"],
    "deviceNodes": [{"path": "/dev/gpu", "hostPath": "/dev/host-gpu"}],
    "mounts": [{"hostPath": "/lib/gpu", "containerPath": "/usr/lib/gpu"}],
    "hooks": [{"hookName": "createRuntime", "path": "/bin/hook"}],
}


@pytest.fixture
def cdi(tmp_path: Path) -> CdiView:
    (tmp_path / "cdi").mkdir()
    (tmp_path / "host/dev").mkdir(parents=True)
    os.mkfifo(tmp_path / "host/dev/host-gpu")
    return CdiView([tmp_path / "static", tmp_path / "cdi"], tmp_path / "host", tmp_path / "kubelet")


def write(cdi: CdiView, name: str, **device: object) -> None:
    spec = {"cdiVersion": "0.5.0", "kind": "a.example.com/gpu", "devices": [{"name": "0", **device}]}
    (cdi.directory / name).write_text(json.dumps(spec))


def test_only_spec_files_are_listed(cdi: CdiView) -> None:
    write(cdi, "one.json", containerEdits=EDITS)
    (cdi.directory / "other.txt").touch()
    assert [path.name for path in cdi.paths()] == ["one.json"]
    assert list(cdi.contents()) == cdi.paths()


def test_a_container_gets_the_edits_of_its_devices(cdi: CdiView) -> None:
    write(cdi, "one.json", containerEdits=EDITS)
    assert cdi.unresolved(["a.example.com/gpu=0", "a.example.com/gpu=1"]) == ["a.example.com/gpu=1"]
    edits = InjectedEdits.of(cdi.container(["a.example.com/gpu=0"]))
    assert edits == InjectedEdits(("A", "B"), ("/dev/gpu",), ("/usr/lib/gpu",), 1)
    assert edits.size == (2, 1, 1, 1)
    assert not edits.empty
    assert InjectedEdits.of({"ociVersion": "1"}).empty


def test_device_nodes_are_looked_up_under_the_host_root(cdi: CdiView, tmp_path: Path) -> None:
    (tmp_path / "host/dev/host-gpu").unlink()
    write(cdi, "one.json", containerEdits=EDITS)
    with pytest.raises(DraError, match="host-gpu"):
        cdi.container(["a.example.com/gpu=0"])
    assert cdi.on_host("/dev/x") == tmp_path / "host/dev/x"


def test_files_of_the_driver_itself_are_not_looked_up_under_the_host_root(cdi: CdiView, tmp_path: Path) -> None:
    written = tmp_path / "kubelet/plugins/a.example.com/metadata.json"
    assert cdi.on_host(str(written)) == written
