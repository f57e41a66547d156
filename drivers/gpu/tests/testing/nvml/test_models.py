"""The GPU models and their MIG profiles."""

from __future__ import annotations

import pytest
from dra_driver_gpu.nvml.mig import Placement
from dra_driver_gpu.nvml.values import Architecture
from dra_driver_gpu.testing.nvml import MODELS, fake_gpu, model
from dra_driver_gpu.testing.nvml.models import compute_instance_profiles
from dra_driver_gpu.testing.nvml.state import GpuState

from dra_sdk import SettingsError

_WITH_MIG = [name for name, model in MODELS.items() if model.mig]


def test_an_unknown_model_is_refused_with_the_known_ones():
    with pytest.raises(SettingsError, match=r"no GPU model 'V100'; the models are A100-40GB, .*B200-180GB"):
        model("V100")


def test_gpus_of_different_minor_numbers_differ():
    gpus = [fake_gpu("A100-40GB", minor) for minor in range(8)]
    assert len({gpu.uuid for gpu in gpus}) == len({gpu.pci_address for gpu in gpus}) == 8
    assert fake_gpu("A100-40GB", 3) == gpus[3]


@pytest.mark.parametrize("name", _WITH_MIG)
def test_the_profiles_of_a_model_are_consistent(name):
    model = MODELS[name]
    assert len({row.id for row in model.mig}) == len({row.kind for row in model.mig}) == len(model.mig)
    whole = max(model.mig, key=lambda row: row.slices)
    assert whole.placements == (Placement(0, model.memory_slices),)
    for row in model.mig:
        assert row.instances <= len(row.starts)
        assert row.memory_mib * row.instances <= whole.memory_mib
        assert row.multiprocessors * row.instances <= whole.multiprocessors
        assert max(row.starts) + row.size <= model.memory_slices
        assert all(start % row.size == 0 for start in row.starts)
        assert row.name.startswith(f"{row.slices}g.")


@pytest.mark.parametrize(("name", "live"), [("A100-40GB", False), ("A30", False), ("H200-141GB", True), ("L4", False)])
def test_mig_mode_changes_without_reset_from_hopper_on(name, live):
    assert MODELS[name].toggles_live is live


def test_a_model_has_as_many_memory_slices_as_its_largest_profile():
    assert {name: MODELS[name].memory_slices for name in ("A100-80GB", "A30", "L4")} == {
        "A100-80GB": 8, "A30": 4, "L4": 0,
    }  # fmt: skip


def test_the_largest_compute_instance_has_all_multiprocessors():
    h100 = MODELS["H100-80GB"]
    three = next(row for row in h100.mig if row.name == "3g.40gb")
    shares = {profile.name: profile.multiprocessors for profile in compute_instance_profiles(h100, three)}
    assert shares == {"1c.3g.40gb": 16, "2c.3g.40gb": 32, "3g.40gb": 60}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (
            "H200-141GB",
            {
                "1g.18gb": (7, 16, "16.00"),
                "1g.18gb+me": (1, 16, "16.00"),
                "1g.35gb": (4, 26, "32.50"),
                "2g.35gb": (3, 32, "32.50"),
                "3g.71gb": (2, 60, "69.75"),
                "4g.71gb": (1, 64, "69.75"),
                "7g.141gb": (1, 132, "140.00"),
            },
        ),
        (
            "B200-180GB",
            {
                "1g.23gb": (7, 18, "20.50"),
                "1g.23gb+me": (1, 18, "20.50"),
                "1g.45gb": (4, 30, "44.25"),
                "2g.45gb": (3, 36, "44.25"),
                "3g.90gb": (2, 70, "89.00"),
                "4g.90gb": (1, 72, "89.00"),
                "7g.180gb": (1, 148, "178.50"),
            },
        ),
    ],
)
def test_profiles_are_those_that_nvidia_smi_shows(name, shown):
    """Instances, multiprocessors and GiB of `nvidia-smi mig -lgip` on such a GPU."""
    rows = {row.name: (row.instances, row.multiprocessors, f"{row.memory_mib / 1024:.2f}") for row in MODELS[name].mig}
    assert rows == shown


@pytest.mark.parametrize("name", ["A100-40GB", "H100-80GB", "H200-141GB", "B200-180GB"])
def test_gpus_with_eight_memory_slices_have_the_same_profiles(name):
    """Id, compute slices, memory slices and placements of each profile."""
    assert [(row.id, row.slices, row.size, row.starts) for row in MODELS[name].mig] == [
        (19, 1, 1, (0, 1, 2, 3, 4, 5, 6)),
        (20, 1, 1, (0, 1, 2, 3, 4, 5, 6)),
        (15, 1, 2, (0, 2, 4, 6)),
        (14, 2, 2, (0, 2, 4)),
        (9, 3, 4, (0, 4)),
        (5, 4, 4, (0,)),
        (0, 7, 8, (0,)),
    ]


@pytest.mark.parametrize(
    ("start", "profile", "number"), [(0, 14, 3), (2, 14, 4), (4, 14, 5), (2, 19, 9), (6, 19, 13), (0, 9, 1), (4, 9, 2)]
)
def test_the_id_of_a_gpu_instance_follows_from_its_placement(start, profile, number):
    state = GpuState.of(fake_gpu("B200-180GB", mig=True))
    assert state.create(profile, Placement(start, state.row(profile).size)).id == number


def test_blackwell_comes_after_hopper():
    assert MODELS["B200-180GB"].architecture > Architecture.HOPPER
