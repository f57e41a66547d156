"""Every release of Kubernetes accepts what is published for every model in every mode, if it has the features."""

from __future__ import annotations

import pytest
from dra_driver_gpu.testing.nvml import MODELS, fake_gpu
from dra_driver_gpu.testing.nvml.models import model

from dra_sdk.testing.cluster import RELEASES

pytestmark = pytest.mark.faults

WITH_SHARING = RELEASES[RELEASES.index("1.36") :]
"""Those that have consumable capacity on by default."""
ACCEPTING = {"disabled": RELEASES, **dict.fromkeys(("memory", "unlimited", "4"), WITH_SHARING)}
"""The releases that accept the slices, by the setting of sharing."""


@pytest.mark.parametrize("passthrough", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_every_release_accepts_every_model_in_every_mode(name, dynamic, passthrough, tmp_path_factory, make_harness_at):
    for sharing, releases in ACCEPTING.items():
        for mig in {False, bool(model(name).mig)}:
            harness = make_harness_at(
                tmp_path_factory.mktemp("n"),
                [fake_gpu(name, 0, mig=mig), fake_gpu(name, 1)],
                dynamic_mig=dynamic,
                passthrough=passthrough,
                sharing=sharing,
            )
            harness.driver.assert_publishable(*releases)
            kinds = {device.attributes["type"] for device in harness.driver.devices.values()}
            assert ("vfio" in kinds) == passthrough
            assert ("mig" in kinds) == (dynamic and bool(model(name).mig) and (mig or model(name).toggles_live))
            assert "gpu-1" in harness.driver.devices


def test_sixteen_gpus_of_every_kind_are_publishable(make_gpus):
    harness = make_gpus(*["H100-80GB"] * 16, dynamic_mig=True, passthrough=True)
    harness.driver.assert_publishable()
    assert len(harness.driver.devices) == 16 * (1 + 25 + 1)
