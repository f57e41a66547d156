"""Links below a root that is not ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from dra_driver_gpu.rooted import follow

from dra_sdk import HardwareError


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("usr/lib64/a", "usr/lib64/a"),
        ("/usr/lib64/a", "usr/lib64/a"),
        ("lib64/a", "usr/lib64/a"),
        ("absolute/a", "usr/lib64/a"),
        ("up/a", "etc/a"),
        ("../../etc", "etc"),
        ("no/such/file", "no/such/file"),
        ("", ""),
    ],
)
def test_links_stay_below_the_root(tmp_path, path, where):
    (tmp_path / "usr/lib64").mkdir(parents=True)
    for name, target in {"lib64": "usr/lib64", "absolute": "/lib64", "up": "../../../etc"}.items():
        (tmp_path / name).symlink_to(target)
    assert follow(tmp_path, path) == tmp_path / where


def test_a_circle(tmp_path):
    (tmp_path / "a").symlink_to("/b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(HardwareError, match=f"a/c below {tmp_path}: links lead in a circle"):
        follow(tmp_path, Path("a/c"))
