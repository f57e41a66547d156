"""The CDI Go library's own test tables, as far as they are about a runtime; those about specs are `wire.cdi`'s."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.tools.simulator import oci
from dra_sdk.tools.simulator.cdi import CdiDirectories, UnresolvedDevicesError
from dra_sdk.tools.simulator.oci import HostDevice
from tests.vectors import cases


def host(path: str) -> HostDevice:
    """The devices that the upstream tests expect on the machine."""
    if path == "/dev/null":
        return HostDevice("c", 1, 3, 0o666)
    raise FileNotFoundError(path)


def write(root: Path, files: dict[str, dict[str, str] | None]) -> list[Path]:
    directories = [root / "etc", root / "run"]
    for directory in directories:
        content = files.get(directory.name)
        if content is None:
            continue
        directory.mkdir(exist_ok=True)
        for name, text in content.items():
            if text == "remove":
                (directory / name).unlink()
            else:
                (directory / name).write_text(text)
    return directories


@pytest.mark.parametrize("case", cases("cdi-cases/cdi.TestApplyContainerEdits"))
def test_apply_container_edits(case: dict[str, Any]) -> None:
    spec = copy.deepcopy(case["spec"])
    oci.apply_edits(spec, case["edits"] or {}, host)
    assert spec == case["result"]


@pytest.mark.parametrize("case", cases("cdi-cases/cdi.TestInjectDevice"))
def test_inject_device(case: dict[str, Any], tmp_path: Path) -> None:
    cdi = CdiDirectories(write(tmp_path, case["cdiSpecs"]), host)
    if case["unresolved"]:
        with pytest.raises(UnresolvedDevicesError, match=case["expectedErr"]) as caught:
            cdi.inject(case["ociSpec"], case["devices"])
        assert list(caught.value.names) == case["unresolved"]
    else:
        assert cdi.inject(case["ociSpec"], case["devices"]) == case["result"]


@pytest.mark.parametrize("case", cases("cdi-cases/cdi.TestNewCache"))
def test_new_cache(case: dict[str, Any], tmp_path: Path) -> None:
    snapshot = CdiDirectories(write(tmp_path, case)).load()
    sources = {name: str(device.spec.path.relative_to(tmp_path)) for name, device in snapshot.devices.items()}
    assert sources == (case["sources"] or {})
    assert {str(path.relative_to(tmp_path)) for path in snapshot.errors} == set(case["errors"] or {})


@pytest.mark.parametrize("case", cases("cdi-cases/cdi.TestRefreshCache"))
def test_refresh_cache(case: dict[str, Any], tmp_path: Path) -> None:
    steps = zip(case["updates"], case["devices"], case["devprio"], case["errors"], strict=True)
    for update, devices, priorities, errors in steps:
        snapshot = CdiDirectories(write(tmp_path, update)).load()
        assert sorted(snapshot.devices) == (devices or [])
        assert {name: device.spec.priority for name, device in snapshot.devices.items()} == priorities
        assert {str(path.relative_to(tmp_path)) for path in snapshot.errors} == set(errors)
