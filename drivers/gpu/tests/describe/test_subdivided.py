"""GPU instances that are cut into several compute instances: names, what is published, and fixtures of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from dra_driver_gpu.describe import Offer, pool, read_cards
from dra_driver_gpu.describe.names import MigName, mig_name, parse_mig_name
from dra_driver_gpu.nvml.memory import read_fixture

from dra_sdk.errors import SettingsError
from dra_sdk.hardware import Host


def fixture(tmp_path: Path, compute: str) -> Path:
    path = tmp_path / "nvml.yaml"
    instances = f"[{{profile: 3g.20gb, start: 4, compute: {compute}}}]"
    path.write_text(f"gpus: [{{model: A100-40GB, mig: true, instances: {instances}}}]")
    return path


@pytest.mark.parametrize("compute", [None, 0, 6])
def test_names_there_and_back(compute: int | None) -> None:
    name = mig_name(3, "1c.3g.20gb", 9, 4, compute)
    assert parse_mig_name(name) == MigName(3, 9, 4, compute)


def test_a_suffix_of_a_profile_is_no_compute_instance() -> None:
    assert parse_mig_name(mig_name(0, "1g.5gb+me", 20, 0)) == MigName(0, 20, 0)


def test_each_compute_instance_is_a_device(tmp_path: Path) -> None:
    nvml = read_fixture(fixture(tmp_path, "[2, 1]"))
    nvml.init()
    devices = {each.name: each for each in pool("n", read_cards(nvml, Host(tmp_path)).cards, (), Offer()).devices}
    assert list(devices) == ["gpu-0-mig-2c3g20gb-ci0-9-4", "gpu-0-mig-1c3g20gb-ci1-9-4"]
    large, small = devices.values()
    assert (large.capacity["multiprocessors"], small.capacity["multiprocessors"]) == (28, 14)
    assert large.capacity["memory"] == small.capacity["memory"]
    assert large.attributes["gpuInstance"] == small.attributes["gpuInstance"]
    assert small.attributes["profile"] == "1c.3g.20gb"
    nvml.shutdown()


@pytest.mark.parametrize(
    ("compute", "message"), [("[5]", "no compute instance of 5 slices"), ("[2, 2]", "cannot be made")]
)
def test_a_fixture_that_cannot_be(tmp_path: Path, compute: str, message: str) -> None:
    with pytest.raises(SettingsError, match=f"instance 3g.20gb at 4 of GPU 0.*{message}"):
        read_fixture(fixture(tmp_path, compute))
