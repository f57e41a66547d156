"""Settings from the environment, and the GPUs that lists name."""

from __future__ import annotations

from pathlib import Path

import pytest
from dra_driver_gpu.settings import GpuIdentity, GpuSelection, GpuSettings, parse_gpus

from dra_sdk import SettingsError
from dra_sdk.hardware.sharing import Sharing


def test_without_variables_all_settings_have_defaults():
    assert GpuSettings.read({"PATH": "/bin", "DRA_GPU_ALLOW": ""}) == GpuSettings()


def test_every_variable_is_read():
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
            "DRA_GPU_BENIGN_XIDS": "94, 63",
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
    assert read.benign_xids == {63, 94}
    assert (read.selection.allow, read.selection.hide) == (("0", "1"), ("*L4*",))


@pytest.mark.parametrize(
    ("variable", "text", "why"),
    [
        ("DRA_GPU_DRIVER_ROOT", "run/nvidia", "must be an absolute path on the host"),
        ("DRA_GPU_DYNAMIC_MIG", "maybe", "must be true or false"),
        ("DRA_GPU_SHARING", "1", "a number of shares from 2"),
        ("DRA_GPU_ALLOW", "MIG-7", "is a MIG device"),
        ("DRA_GPU_ALLOW", "65:00", "not a PCI address"),
        ("DRA_GPU_MPS_SHM", "none", "must be 'private' or 'host'"),
        ("DRA_GPU_VFIO_SECONDS", "60", "at most 40 seconds: the kubelet waits 45 for a claim"),
        ("DRA_GPU_BENIGN_XIDS", "48,x", "'x' must be a whole number"),
        ("DRA_GPU_BENIGN_XIDS", "48,0", "'0' must be greater than or equal to 1"),
        ("DRA_GPU_BENIGN_XIDS", "65536,48", "'65536' must be less than or equal to 65535"),
        ("DRA_GPU_VFIO_SECONDS", "soon", "must be a number"),
    ],
)
def test_an_unusable_value_is_an_error_with_the_variable(variable, text, why):
    with pytest.raises(SettingsError, match=f"environment variable {variable}={text!r}: .*{why}"):
        GpuSettings.read({variable: text})


def test_an_unknown_variable_is_an_error():
    with pytest.raises(
        SettingsError, match=r"unknown environment variable DRA_GPU_DYNAMICMIG; did you mean DRA_GPU_DYNAMIC_MIG\?"
    ):
        GpuSettings.read({"DRA_GPU_DYNAMICMIG": "true"})


def test_the_readme_has_the_table():
    readme = Path(__file__).parents[1] / "README.md"
    assert GpuSettings.markdown() in readme.read_text()


GPU = GpuIdentity(3, "GPU-2fa81118-0000-4000-8000-000000000001", "0000:65:00.0", "NVIDIA A100-SXM4-40GB")


@pytest.mark.parametrize(
    ("word", "names_it"),
    [
        ("3", True),
        ("03", True),
        ("33", False),
        ("gpu-2FA81118-0000-4000-8000-000000000001", True),
        ("GPU-2fa81118", False),
        ("65:00.0", True),
        ("0000:65:00.0", True),
        ("0000:66:00.0", False),
        ("*A100*", True),
        ("nvidia a100-sxm4-40gb", True),
        ("A100", False),
        ("*H100*", False),
    ],
)
def test_a_word_names_a_gpu(word, names_it):
    assert GPU.matches(word) is names_it


def test_an_empty_allow_list_allows_all_and_hide_takes_precedence():
    assert GpuSelection().includes(GPU)
    assert not GpuSelection(allow=["0"]).includes(GPU)
    assert GpuSelection(allow=["0", "*A100*"]).includes(GPU)
    assert not GpuSelection(allow=["3"], hide=["65:00.0"]).includes(GPU)


def test_a_gpu_with_only_a_known_address():
    hidden = GpuIdentity(pci_address="0000:65:00.0")
    assert GpuSelection(hide=["*", "0"]).includes(hidden)
    assert not GpuSelection(hide=["65:00.0"]).includes(hidden)


def test_lists_are_separated_by_commas():
    assert parse_gpus(" 0, *A100* ,,65:00.0") == ["0", "*A100*", "65:00.0"]


@pytest.mark.parametrize(
    ("text", "why"), [("MIG-1", "MIG device"), ("65:00", "not a PCI address"), ("gpu-0", "use its minor number, 0")]
)
def test_a_word_that_can_name_no_gpu(text, why):
    with pytest.raises(ValueError, match=why):
        parse_gpus(text)
