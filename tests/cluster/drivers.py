"""The drivers of one test, and taking away whatever the test left of them and their claims."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.patience import PATIENCE

# Pods first: 1.34 does not notice that a claim for extended resources has lost its pod, but looks when the claim goes.
EVERYTHING = ("pods", "resourceclaims,resourceclaimtemplates")
KNOBS = "knobs.example.com"


class Drivers:
    """Starts drivers on one cluster; `clean` when the test has ended, however it did."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._started: list[DriverUnderTest] = []

    def start(self, target: str, name: str, *flags: str) -> DriverUnderTest:
        """Start a driver and wait until it has published and is registered."""
        driver = self._new(target, name)
        driver.start(*flags)
        driver.wait(driver.ready)
        return driver

    def knobs(
        self,
        *flags: str,
        name: str = KNOBS,
        instance: str = "",
        until: Callable[[DriverUnderTest], object] = DriverUnderTest.ready,
        **turned: Any,
    ) -> DriverUnderTest:
        """Start the driver with knobs, some of them turned already, and wait until it is as far as it is to be."""
        driver = self._new("tests.cluster.knob_driver:KnobDriver", name, instance)
        driver.knobs.set(**turned)
        driver.start(*flags)
        driver.wait(lambda: until(driver))
        return driver

    def clean(self) -> None:
        """Delete all pods and claims, see that the drivers hold nothing any more, and end them in good order."""
        for driver in self._started:
            driver.knobs.reset()
        try:
            for kinds in EVERYTHING:
                everywhere = ("--all", "--all-namespaces", "--wait=true", f"--timeout={PATIENCE:.0f}s")
                self._cluster.kubectl("delete", kinds, *everywhere)
            for driver in filter(DriverUnderTest.running, self._started):
                driver.wait(lambda driver=driver: not driver.held())  # type: ignore[misc]
            for driver in filter(DriverUnderTest.running, self._started):
                assert driver.stop() == 0, driver.log_text()
        finally:
            for driver in filter(DriverUnderTest.running, self._started):
                driver.kill()
            for driver in self._started:
                print(driver.log_text())
            for driver in self._started:
                self._remove(driver)

    def _new(self, target: str, name: str, instance: str = "") -> DriverUnderTest:
        self._started.append(DriverUnderTest(self._cluster, target, name, self._folder, instance))
        return self._started[-1]

    def _remove(self, driver: DriverUnderTest) -> None:
        """What an ended driver leaves on purpose: its slices and its state, and its sockets if it was killed."""
        self._cluster.api.delete(driver.path)
        for stale in (self._cluster.kubelet_dir / "plugins_registry").glob(f"{driver.name}-*"):
            stale.unlink()
        with contextlib.suppress(FileNotFoundError):  # of several instances, or of one that had none
            shutil.rmtree(driver.data)
