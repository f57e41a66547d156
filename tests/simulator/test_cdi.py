from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.simulator.cdi import CdiDirectories, UnresolvedDevicesError, parse
from dra_sdk.simulator.cdi_rules import CdiSpecError

KIND = "vendor.com/class"


def spec(*names: str, edits: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    devices = [{"name": name, "containerEdits": {"env": [f"DEV={name}"]}} for name in names]
    return {"cdiVersion": "1.1.0", "kind": KIND, "devices": devices, "containerEdits": edits or {}, **more}


def put(directory: Path, name: str, content: Any) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(content if isinstance(content, str) else json.dumps(content))


def test_only_json_and_yaml_files_of_the_directory_itself_count(tmp_path: Path) -> None:
    put(tmp_path, "a.json", spec("a"))
    put(tmp_path, "b.yaml", spec("b"))
    put(tmp_path, "c.json.tmp", spec("c"))
    put(tmp_path / "below", "d.json", spec("d"))
    assert sorted(CdiDirectories([tmp_path, tmp_path / "missing"]).load().devices) == [f"{KIND}=a", f"{KIND}=b"]


def test_a_spec_is_seen_as_soon_as_it_is_there(tmp_path: Path) -> None:
    cdi = CdiDirectories([tmp_path])
    with pytest.raises(UnresolvedDevicesError):
        cdi.inject({}, [f"{KIND}=a"])
    put(tmp_path, "a.json", spec("a"))
    assert cdi.inject({}, [f"{KIND}=a"])["process"]["env"] == ["DEV=a"]


def test_an_unresolved_device_comes_with_what_is_wrong_with_the_specs(tmp_path: Path) -> None:
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
    ("content", "field"),
    [
        ({**spec("a"), "extra": 1}, "extra"),
        ({**spec("a"), "devices": {}}, "devices"),
        ({**spec("a"), "devices": [None]}, "devices[0]"),
        (spec(), "devices"),
        (spec("a", "a"), "devices[1].name"),
        (spec("a", cdiVersion="0.2.0"), "cdiVersion"),
        (spec("a", cdiVersion="1.2.0"), "cdiVersion"),
        (spec("a", cdiVersion="0.6.0", edits={"additionalGids": [1]}), "cdiVersion"),
        (spec("a", kind="vendor"), "kind"),
        (spec("a", annotations={"a b": "c"}), "annotations"),
        (spec("a", annotations={"k": "v" * 300_000}), "annotations"),
        (spec("a", edits={"env": ["=x"]}), "containerEdits.env[0]"),
        (spec("a", edits={"env": "X=y"}), "containerEdits.env"),
        (spec("a", edits={"additionalGids": [2**32]}), "containerEdits.additionalGids[0]"),
        (spec("a", edits={"additionalGids": [True]}), "containerEdits.additionalGids[0]"),
        (
            spec("a", edits={"deviceNodes": [{"path": "/dev/x", "permissions": "rx"}]}),
            "containerEdits.deviceNodes[0].permissions",
        ),
        (spec("a\n"), "devices[0].name"),
        (spec("a", kind="vendor.com/class\n"), "kind"),
        (
            spec("a", edits={"netDevices": [{"hostInterfaceName": "e0", "name": "n"}] * 2}),
            "containerEdits.netDevices[1].hostInterfaceName",
        ),
    ],
)
def test_a_broken_rule_names_the_field(content: Any, field: str) -> None:
    with pytest.raises(CdiSpecError) as caught:
        parse(json.dumps(content))
    assert caught.value.field == field
    assert field in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "a: b: c", '{"kind": "a", "kind": "b"}', "kind: a\nkind: b\n"])
def test_what_does_not_parse(text: str) -> None:
    with pytest.raises(CdiSpecError, match="not parsable"):
        parse(text)


@pytest.mark.parametrize("version", ["v1.1.0", "0.3.0"])
def test_versions_may_have_a_v_and_be_old(version: str) -> None:
    assert parse(json.dumps(spec("a", cdiVersion=version)))["cdiVersion"] == version
