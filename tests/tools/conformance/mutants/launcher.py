"""Starts the driver inside the process of the tests, where a real launcher would start a process."""

from __future__ import annotations

from dra_sdk.tools.conformance.launch import Process
from dra_sdk.tools.conformance.site import Site
from tests.tools.conformance.mutants.driver import MutantDriver
from tests.tools.conformance.mutants.faults import Faults


class MutantProcess:
    """A driver as if it were a process."""

    def __init__(self, driver: MutantDriver) -> None:
        self.driver = driver
        self._ended = ""
        driver.start()

    def ended(self) -> str:
        return self._ended or self.driver.problem

    def terminate(self, timeout: float) -> bool:
        if "hangs" in self.driver.faults:
            self.kill()
            return False
        if not self._ended:
            self.driver.stop()
            self._ended = "ended with status 0"
        return True

    def kill(self) -> None:
        if not self._ended:
            self.driver.kill()
            self._ended = "was ended by SIGKILL"

    def log(self) -> str:
        return "the mutant prints nothing"

    def open_files(self) -> int | None:
        return 10 + self.driver.preparer.leaked


class MutantLauncher:
    """Starts instances; `instances` because the driver keeps its state in files."""

    instances = True

    def __init__(self, name: str, faults: Faults) -> None:
        self._name, self._faults = name, faults
        self._started = 0

    def start(self, site: Site, pod_uid: str) -> Process:
        self._started += 1
        driver = MutantDriver(self._name, site, self._faults, pod_uid)
        if "once" in self._faults and self._started > 1:
            driver.problem = "ended with status 1"
            driver.publisher.client.close()
            return _Dead()
        return MutantProcess(driver)


class _Dead:
    def ended(self) -> str:
        return "ended with status 1"

    def terminate(self, timeout: float) -> bool:
        return True

    def kill(self) -> None: ...

    def log(self) -> str:
        return "lock is held"

    def open_files(self) -> int | None:
        return None
