"""Starts the driver in the process of the tests, where a real launcher starts a process of its own."""

from __future__ import annotations

from dra_sdk.tools.conformance.environment import NodeEnvironment
from dra_sdk.tools.conformance.launcher import InstanceProcess
from tests.tools.conformance.mutants import Faults
from tests.tools.conformance.mutants.driver import MutantDriver


class MutantProcess:
    """A driver that behaves like a process."""

    def __init__(self, driver: MutantDriver) -> None:
        self.driver = driver
        self._ended = ""
        driver.start()

    def exit_reason(self) -> str:
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
            self._ended = "was killed by SIGKILL"

    def log(self) -> str:
        return "the mutant prints nothing"

    def open_files(self) -> int | None:
        return 10 + self.driver.preparer.leaked


class MutantLauncher:
    """Starts instances; two can run at once because the driver keeps its state in files."""

    concurrent = True

    def __init__(self, name: str, faults: Faults) -> None:
        self._name, self._faults = name, faults
        self._started = 0

    def start(self, environment: NodeEnvironment, pod_uid: str) -> InstanceProcess:
        self._started += 1
        driver = MutantDriver(self._name, environment, self._faults, pod_uid)
        if "once" in self._faults and self._started > 1:
            driver.problem = "ended with status 1"
            driver.publisher.client.close()
            return _Dead()
        return MutantProcess(driver)


class _Dead:
    def exit_reason(self) -> str:
        return "ended with status 1"

    def terminate(self, timeout: float) -> bool:
        return True

    def kill(self) -> None: ...

    def log(self) -> str:
        return "lock is held"

    def open_files(self) -> int | None:
        return None
