"""The drivers of one test, and removing what the test leaves of them and of their claims."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.waiting import TIMEOUT

# Pods first: 1.34 does not notice that the pod of a claim for extended resources is gone until the claim is deleted.
EVERYTHING = ("pods", "resourceclaims,resourceclaimtemplates")
KNOBS = "knobs.example.com"


class Drivers:
    """Starts drivers on one cluster; call `clean` when the test has ended."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._started: list[DriverUnderTest] = []

    def start(self, target: str, name: str, *flags: str) -> DriverUnderTest:
        """Starts a driver, and waits until it has published its slices and is registered."""
        driver = self.launch(target, name, *flags)
        driver.wait(driver.ready)
        return driver

    def launch(self, target: str, name: str, *flags: str, **options: Any) -> DriverUnderTest:
        """Starts a driver, and does not wait; `options` are those of DriverUnderTest."""
        driver = self._new(target, name, **options)
        driver.start(*flags)
        return driver

    def knobs(
        self,
        *flags: str,
        name: str = KNOBS,
        instance: str = "",
        until: Callable[[DriverUnderTest], object] = DriverUnderTest.ready,
        **settings: Any,
    ) -> DriverUnderTest:
        """Starts the driver with knobs, some of them set already, and waits for `until`."""
        driver = self._new("tests.cluster.knob_driver:KnobDriver", name, instance)
        driver.knobs.set(**settings)
        driver.start(*flags)
        driver.wait(lambda: until(driver))
        return driver

    def clean(self) -> None:
        """Deletes all pods and claims, waits until the drivers hold none, and stops them. It may be called twice."""
        for driver in self._started:
            driver.knobs.reset()
        try:
            for kinds in EVERYTHING:
                everywhere = ("--all", "--all-namespaces", "--wait=true", f"--timeout={TIMEOUT:.0f}s")
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
            self._started.clear()

    def _new(self, target: str, name: str, instance: str = "", **options: Any) -> DriverUnderTest:
        self._started.append(DriverUnderTest(self._cluster, target, name, self._folder, instance, **options))
        return self._started[-1]

    def _remove(self, driver: DriverUnderTest) -> None:
        """Removes what a driver leaves when it ends: its slices and its state, and its sockets if it was killed."""
        self._cluster.api.delete(driver.path)
        for stale in (self._cluster.kubelet_dir / "plugins_registry").glob(f"{driver.name}-*"):
            stale.unlink()
        with contextlib.suppress(FileNotFoundError):  # it has none, or another instance removed it
            shutil.rmtree(driver.data)
