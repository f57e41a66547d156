"""Settings from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from dra_driver_gpu.describe.sharing import Sharing
from dra_driver_gpu.settings import SETTINGS, GpuSettings, settings_table

from dra_sdk.errors import SettingsError


def test_nothing_set():
    assert GpuSettings.read({"PATH": "/bin", "DRA_GPU_ALLOW": ""}) == GpuSettings()


def test_everything_set():
    read = GpuSettings.read(
        {
            "DRA_GPU_DRIVER_ROOT": "/run/nvidia/driver/",
            "DRA_GPU_DEV_ROOT": "/",
            "DRA_GPU_STATE_DIR": "/var/lib/gpu",
            "DRA_GPU_CDI_HOOK": "/opt/nvidia-cdi-hook",
            "DRA_GPU_DYNAMIC_MIG": "true",
            "DRA_GPU_PASSTHROUGH": "on",
            "DRA_GPU_SHARING": "4",
            "DRA_GPU_ALLOW": "0,1",
            "DRA_GPU_HIDE": "*L4*",
            "DRA_GPU_MPS": "No",
            "DRA_GPU_MPS_SHM": "host",
            "DRA_GPU_MPS_SECONDS": "2.5",
        }
    )
    assert (read.driver_root, read.dev_root, read.state_dir) == ("/run/nvidia/driver", "/", "/var/lib/gpu")
    assert (read.dynamic_mig, read.passthrough, read.mps, read.mps_shm, read.mps_seconds) == (
        True,
        True,
        False,
        "host",
        2.5,
    )
    assert read.sharing == Sharing("shares", 4)
    assert (read.selection.allow, read.selection.hide) == (("0", "1"), ("*L4*",))


@pytest.mark.parametrize(
    ("variable", "text", "why"),
    [
        ("DRA_GPU_DRIVER_ROOT", "run/nvidia", "must be an absolute path on the host"),
        ("DRA_GPU_DYNAMIC_MIG", "maybe", "must be true or false"),
        ("DRA_GPU_SHARING", "1", "a number of shares from 2"),
        ("DRA_GPU_ALLOW", "MIG-7", "is a MIG device"),
        ("DRA_GPU_MPS_SHM", "none", "must be private or host"),
        ("DRA_GPU_VFIO_SECONDS", "60", "at most 40 seconds"),
        ("DRA_GPU_VFIO_SECONDS", "soon", "could not convert"),
    ],
)
def test_what_cannot_be_used_is_named(variable, text, why):
    with pytest.raises(SettingsError, match=f"environment variable {variable}={text!r}: .*{why}"):
        GpuSettings.read({variable: text})


def test_a_misspelt_variable_is_an_error():
    with pytest.raises(SettingsError, match="unknown environment variable DRA_GPU_DYNAMICMIG: there are DRA_GPU_"):
        GpuSettings.read({"DRA_GPU_DYNAMICMIG": "true"})


def test_the_table_has_every_setting():
    assert all(f"| `{each.variable}` | {each.default} |" in settings_table() for each in SETTINGS)


def test_the_readme_has_the_table():
    readme = Path(__file__).parents[1] / "README.md"
    assert settings_table() in readme.read_text()
