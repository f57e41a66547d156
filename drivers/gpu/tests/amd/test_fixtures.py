"""The fixtures of the driver: nodes without hardware, for `dra-sdk simulate` and other commands."""

from __future__ import annotations

import gzip
from pathlib import Path

import dra_driver_amd
import pytest
import yaml
from dra_driver_amd.testing import FIXTURES, write_fixture

from dra_sdk.cli.main import main

FOLDER = Path(dra_driver_amd.__file__).parent / "fixtures"


def test_each_fixture_is_what_the_function_writes(tmp_path: Path) -> None:
    assert sorted(file.name for file in FOLDER.iterdir()) == sorted(f"{name}.tar.gz" for name in FIXTURES)
    for name in FIXTURES:
        for made in ("one", "other"):
            write_fixture(name, tmp_path / made)
        assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
        # Not the compressed bytes, which differ with the version of zlib.
        assert gzip.decompress((FOLDER / f"{name}.tar.gz").read_bytes()) == gzip.decompress(
            (tmp_path / "one").read_bytes()
        ), f"write_fixture({name!r}, …) writes another archive by now; write it again"


@pytest.mark.parametrize(
    ("fixture", "kind", "devices"),
    [
        ("mi300x-x8", "whole", ["gpu-1-128", "gpu-9-136"]),
        ("mi300x-x8-cpx", "partition", ["gpu-1-128", "gpu-2-129"]),
    ],
)
def test_simulate_takes_a_fixture(
    fixture: str, kind: str, devices: list[str], *, manifests: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "claim"},
        "spec": {
            "devices": {
                "requests": [{"name": "gpus", "exactly": {"deviceClassName": f"{kind}.gpu.amd.com", "count": 2}}]
            }
        },
    }
    (tmp_path / "claim.yaml").write_text(yaml.safe_dump(claim))
    files = [str(manifests), str(tmp_path / "claim.yaml")]
    status = main(["simulate", *files, "--driver", "gpu-amd", "--fixture", fixture])
    out = capsys.readouterr().out
    assert status == 0
    assert all(name in out for name in devices)


def test_a_fixture_has_all_that_the_demo_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "gpu-amd", "--host-root", str(FOLDER / "mi300x-x8.tar.gz")]) == 0
    out = capsys.readouterr().out
    assert "/dev/kfd" in out
    assert "/dev/dri/renderD128" in out
