"""Failures on demand: the n-th call of an NVML function, or the n-th call of any, fails in a given way.

    nvml.faults.fail("nvmlGpuInstanceDestroy", ReturnCode.IN_USE, nth=2)
    nvml.faults.fail_call(7, KilledHere())      # the process dies in the seventh call from now

Functions are named as in nvml.h. What is raised is the NvmlError of a return code, or any exception that is given.
"""

from __future__ import annotations

from dataclasses import dataclass

from dra_driver_gpu.nvml.errors import ReturnCode, error_of


@dataclass
class Fault:
    """Fails calls `nth` to `nth + times - 1` of `call` (any where None), before or after they took effect."""

    call: str | None
    failure: ReturnCode | BaseException
    nth: int
    times: int
    after: bool

    def count(self, call: str) -> bool:
        """Counts one call; whether it is to fail."""
        if self.call not in {None, call}:
            return False
        self.nth -= 1
        return -self.times < self.nth <= 0

    @property
    def spent(self) -> bool:
        """Whether it will not fail anything any more."""
        return self.nth <= -self.times + 1

    def error(self, call: str) -> BaseException:
        """What `call` raises."""
        return self.failure if isinstance(self.failure, BaseException) else error_of(call, self.failure)


class Faults:
    """The failures to come, and every call that was made."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._faults: list[Fault] = []

    def fail(
        self,
        call: str,
        failure: ReturnCode | BaseException = ReturnCode.UNKNOWN,
        *,
        nth: int = 1,
        times: int = 1,
        after: bool = False,
    ) -> None:
        """Lets the `nth` call of this function from now on fail, and `times` - 1 after it.

        `after` lets it take effect before it fails, as a call does whose answer is lost.
        """
        self._faults.append(Fault(call, failure, nth, times, after))

    def fail_call(
        self, nth: int, failure: ReturnCode | BaseException = ReturnCode.UNKNOWN, *, after: bool = False
    ) -> None:
        """Lets the `nth` call from now on fail, whichever function it is of."""
        self._faults.append(Fault(None, failure, nth, 1, after))

    def clear(self) -> None:
        """Forgets the failures to come and the calls that were made."""
        self._faults.clear()
        self.calls.clear()

    def enter(self, call: str) -> BaseException | None:
        """Notes a call. Raises where it fails before its effect; returns what it is to raise after it."""
        self.calls.append(call)
        due = [one for one in self._faults if one.count(call)]
        self._faults = [one for one in self._faults if not one.spent]
        if not due:
            return None
        if due[0].after:
            return due[0].error(call)
        raise due[0].error(call)
