"""The GPU models, and what follows from their tables."""

from __future__ import annotations

import pytest
from dra_driver_gpu.nvml.memory import MODELS, fake_gpu, model
from dra_driver_gpu.nvml.memory.models import compute_instance_profiles
from dra_driver_gpu.nvml.values import Architecture, Placement

from dra_sdk.errors import SettingsError

_WITH_MIG = [name for name, one in MODELS.items() if one.mig]


def test_unknown_model_names_the_known_ones():
    with pytest.raises(SettingsError, match=r"no GPU model 'V100'; the models are A100-40GB, .*B200-180GB"):
        model("V100")


def test_gpus_of_different_minor_numbers_differ():
    gpus = [fake_gpu("A100-40GB", minor) for minor in range(8)]
    assert len({gpu.uuid for gpu in gpus}) == len({gpu.pci_address for gpu in gpus}) == 8
    assert fake_gpu("A100-40GB", 3) == gpus[3]


@pytest.mark.parametrize("name", _WITH_MIG)
def test_tables_hold_together(name):
    one = MODELS[name]
    assert len({row.id for row in one.mig}) == len({row.kind for row in one.mig}) == len(one.mig)
    whole = max(one.mig, key=lambda row: row.slices)
    assert whole.placements == (Placement(0, one.memory_slices),)
    for row in one.mig:
        assert row.instances <= len(row.starts)
        assert row.memory_mib * row.instances <= whole.memory_mib
        assert row.multiprocessors * row.instances <= whole.multiprocessors
        assert max(row.starts) + row.size <= one.memory_slices
        assert all(start % row.size == 0 for start in row.starts)
        assert row.name.startswith(f"{row.slices}g.")


@pytest.mark.parametrize(("name", "live"), [("A100-40GB", False), ("A30", False), ("H200-141GB", True), ("L4", False)])
def test_mig_is_switched_live_from_hopper_on(name, live):
    assert MODELS[name].toggles_live is live


def test_memory_slices_are_what_the_largest_profile_takes():
    assert {name: MODELS[name].memory_slices for name in ("A100-80GB", "A30", "L4")} == {
        "A100-80GB": 8, "A30": 4, "L4": 0,
    }  # fmt: skip


def test_the_whole_of_a_gpu_instance_has_all_its_multiprocessors():
    h100 = MODELS["H100-80GB"]
    three = next(row for row in h100.mig if row.name == "3g.40gb")
    shares = {one.name: one.multiprocessors for one in compute_instance_profiles(h100, three)}
    assert shares == {"1c.3g.40gb": 16, "2c.3g.40gb": 32, "3g.40gb": 60}


def test_blackwell_comes_after_hopper():
    assert MODELS["B200-180GB"].architecture > Architecture.HOPPER
