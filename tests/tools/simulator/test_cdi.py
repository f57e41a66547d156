from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.tools.simulator.cdi import CdiDirectories, UnresolvedDevicesError

KIND = "vendor.com/class"


def spec(*names: str, edits: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    devices = [{"name": name, "containerEdits": {"env": [f"DEV={name}"]}} for name in names]
    return {"cdiVersion": "1.1.0", "kind": KIND, "devices": devices, "containerEdits": edits or {}, **more}


def put(directory: Path, name: str, content: Any) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(content if isinstance(content, str) else json.dumps(content))


def test_only_json_and_yaml_files_in_the_directory_are_read(tmp_path: Path) -> None:
    put(tmp_path, "a.json", spec("a"))
    put(tmp_path, "b.yaml", spec("b"))
    put(tmp_path, "c.json.tmp", spec("c"))
    put(tmp_path / "below", "d.json", spec("d"))
    assert sorted(CdiDirectories([tmp_path, tmp_path / "missing"]).load().devices) == [f"{KIND}=a", f"{KIND}=b"]


def test_a_new_spec_is_found_at_once(tmp_path: Path) -> None:
    cdi = CdiDirectories([tmp_path])
    with pytest.raises(UnresolvedDevicesError):
        cdi.inject({}, [f"{KIND}=a"])
    put(tmp_path, "a.json", spec("a"))
    assert cdi.inject({}, [f"{KIND}=a"])["process"]["env"] == ["DEV=a"]


def test_an_unresolved_device_is_reported_with_the_errors_of_the_specs(tmp_path: Path) -> None:
    put(tmp_path, "a.json", spec("a", kind="novendor"))
    with pytest.raises(UnresolvedDevicesError, match=r"vendor\.com/class=a.*a\.json.*kind") as caught:
        CdiDirectories([tmp_path]).inject({}, [f"{KIND}=a"])
    assert caught.value.names == (f"{KIND}=a",)


def test_the_edits_of_a_spec_come_once_and_first(tmp_path: Path) -> None:
    put(tmp_path, "a.json", spec("a", "b", edits={"hooks": [{"hookName": "prestart", "path": "/hook"}]}))
    before = {"ociVersion": "1.2.0"}
    after = CdiDirectories([tmp_path]).inject(before, [f"{KIND}=a", f"{KIND}=b"])
    assert after["hooks"]["prestart"] == [{"path": "/hook"}]
    assert after["process"]["env"] == ["DEV=b"]
    assert before == {"ociVersion": "1.2.0"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({**spec("a"), "extra": 1}, "extra: unknown field"),
        (spec("a", cdiVersion="0.6.0", edits={"additionalGids": [1]}), "cdiVersion"),
        (spec("a", edits={"env": ["=x"]}), "env[0]"),
        ('{"kind": "a", "kind": "b"}', "'kind' is given twice"),
        ("a: b: c", "line 1, column 5"),
        ("", "must hold one document"),
    ],
)
def test_a_spec_that_breaks_a_rule_is_left_out(tmp_path: Path, content: Any, said: str) -> None:
    put(tmp_path, "a.json", content)
    put(tmp_path, "b.json", spec("b"))
    snapshot = CdiDirectories([tmp_path]).load()
    assert list(snapshot.devices) == [f"{KIND}=b"]
    ((path, (problem,)),) = snapshot.errors.items()
    assert path.name == "a.json"
    assert said in problem
