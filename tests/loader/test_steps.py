"""Steps: what extensions observe, what is measured, and what costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from dra_sdk import Claim, Device, DriverInfo, HeldClaim, Node
from dra_sdk.errors import HookError
from dra_sdk.extensions import Step
from dra_sdk.loader import Driver

NAME = "lamp.example.com"
NODE = Node("n")
GAUGES: list[Any] = []


class Lamp:
    """A driver with the hooks that are measured."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME)

    def dra_discover(self, node: Node) -> list[Device]:
        return []

    def dra_prepare(self, claim: Claim[Any]) -> list[Any]:
        return []

    def dra_unprepare(self, claim: HeldClaim) -> None: ...

    def dra_metrics(self, node: Node) -> list[Any]:
        return GAUGES


class Observer:
    """An extension that observes steps, except those called `dull`."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @contextmanager
    def observe(self, step: Step) -> Iterator[None]:
        self.seen.append(f"{step.driver}: {step.name} {dict(step.attributes)} {dict(step.metadata)}")
        try:
            yield
        except OSError as error:
            self.seen.append(f"{step.name}: {error}")
            raise
        self.seen.append(f"{step.name} ended")

    def dra_step(self, step: Step) -> AbstractContextManager[None] | None:
        return None if step.name == "dull" else self.observe(step)


def test_an_extension_observes_steps_and_their_failures() -> None:
    observer = Observer()
    steps = Driver.of(Lamp(), [observer, Observer()]).steps
    with steps.step("call", {"traceparent": "00"}), steps.step("dull"), steps.step("prepare", claim="ns/c"):
        pass
    with pytest.raises(OSError, match="gone"), steps.step("read claim"):
        raise OSError("gone")
    assert observer.seen == [
        f"{NAME}: call {{}} {{'traceparent': '00'}}",
        f"{NAME}: prepare {{'claim': 'ns/c'}} {{}}",
        "prepare ended",
        "call ended",
        f"{NAME}: read claim {{}} {{}}",
        "read claim: gone",
    ]


def test_a_function_is_a_step_with_attributes_of_its_arguments() -> None:
    observer = Observer()
    steps = Driver.of(Lamp(), [observer]).steps
    observed = steps.around("add", lambda left, right: left + right, lambda left, right: {"sum of": f"{left} {right}"})
    assert observed(1, right=2) == 3
    assert observer.seen == [f"{NAME}: add {{'sum of': '1 2'}} {{}}", "add ended"]


def test_a_function_that_nothing_observes_stays_as_it_is() -> None:
    steps = Driver.of(Lamp()).steps
    assert steps.around("sort", sorted) is sorted


def test_hooks_are_steps() -> None:
    observer = Observer()
    Driver.of(Lamp(), [observer]).discover(NODE)
    assert observer.seen == [f"{NAME}: dra_discover {{}} {{}}", "dra_discover ended"]


def test_an_observer_that_raises_is_named_by_its_hook() -> None:
    class Broken:
        def dra_step(self, step: Step) -> None:
            raise ValueError("no room")

    with pytest.raises(HookError, match=r"dra_step of driver \S+ failed: ValueError: no room"):
        Driver.of(Lamp(), [Broken()]).steps.step("prepare")


@pytest.mark.parametrize("extensions", [[], [Observer()]])
def test_hooks_that_end_by_themselves_are_measured(extensions: list[object]) -> None:
    names: list[str] = []

    @contextmanager
    def measure(hook: str) -> Iterator[None]:
        yield
        names.append(hook)

    unmeasured = Driver.of(Lamp(), extensions)
    driver = unmeasured.measured(measure)
    driver.discover(NODE)
    list(driver.prepare(Claim("ns", "c", "u-1", NODE, ())))
    driver.unprepare(HeldClaim("ns", "c", "u-1"), NODE)
    driver.metrics(NODE, [])
    unmeasured.discover(NODE)
    assert names == ["dra_discover", "dra_prepare", "dra_unprepare", "dra_metrics"]
