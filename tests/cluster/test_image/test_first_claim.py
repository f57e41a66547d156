"""From the image to the first claim. pytest runs this file first, while the node has not had the drivers yet."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.layout import OWN_CDI_DIRS
from tests.cluster.harness.waiting import TIMEOUT
from tests.cluster.pods import cpus_of, failures
from tests.cluster.test_image.release import Release, driver_name
from tests.cluster.test_image.seen import both, busy, slices, specs, states, user, variables

LIMIT = 60.0
"""Seconds from the installation to the first pod with a claim."""
LARGEST = 200
"""Megabytes of the image, without compression."""


def test_the_image_is_small(archive: Path) -> None:
    size = archive.stat().st_size / 1e6
    print(f"image of all drivers: {size:.0f} MB")
    assert size <= LARGEST


@pytest.mark.usefixtures("users")
def test_from_the_installation_to_the_first_claim(cluster: Cluster, installed: Release) -> None:
    """Both drivers are installed side by side, and a pod with a claim of both is created at once.

    Slices of an earlier release are gone: by them the pod would come to the node before the drivers are there.
    """
    installed.remove()
    names = [driver_name(key) for key in OWN_CDI_DIRS]
    cluster.wait_until(lambda: slices(cluster, *names) == [], "the kubelet has removed the slices of before")
    begun = time.monotonic()
    installed.put("one")
    cluster.apply(both(), user())
    cluster.wait_pod("user", timeout=TIMEOUT * 2)
    took = time.monotonic() - begun
    print(f"installation to first claim: {took:.1f} s (there is {busy():.1f} times as much to do as CPUs)")
    assert took <= LIMIT
    assert failures(cluster, ["user"]) == []  # the pod is there before the drivers are
    found = variables(cluster, "user")
    assert [each for each in found if each.startswith("DRA_CPUSET_")]
    assert [each for each in found if each.startswith("DRA_MEMS_")]
    assert len(cpus_of(cluster, "user")) == 1
    for key in OWN_CDI_DIRS:
        where = installed.run_inside(
            key, "import dra_sdk, json, sys; print(json.dumps([dra_sdk.__file__, *sys.path[1:]]))"
        )
        assert {Path(each).parts[1] for each in where} <= {"opt", "usr"}, where
        mounted = {each["hostPath"]["path"] for each in installed.pod(key)["spec"]["volumes"] if "hostPath" in each}
        assert not [each for each in mounted if Path(__file__).is_relative_to(each)], mounted
    cluster.kubectl("delete", "pod", "user", "--wait=true")
    assert (specs(cluster), states(cluster)) == ([], {})
