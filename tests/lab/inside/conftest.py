"""The PCI functions of the machine that stand for GPUs. Each test leaves them as it found them."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab.inside.functions import Function, functions_of, shown_as_gpus
from tests.lab.inside.rig import Rig

DRIVERS = ("igb", "e1000e", "e1000")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("DRA_SDK_LAB") != "inside" and not config.option.collectonly:
        raise pytest.UsageError("these tests rebind PCI functions: they run in the virtual machine (make test-lab)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests of the node last: its daemons slow the others down."""
    items.sort(key=lambda item: item.path.parent.name == "node")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tells at once why a test failed: the machine may not live until the summary."""
    report = yield
    if report.failed:
        reporter = item.config.pluginmanager.getplugin("terminalreporter")
        reporter.write_line(f"\n{report.nodeid}, {report.when}:\n{report.longreprtext}")
    return report


@pytest.fixture(scope="session")
def nics() -> dict[str, list[Function]]:
    """The functions by their kernel driver, as they are after the boot."""
    found = {driver: functions_of(driver) for driver in DRIVERS}
    assert {driver: len(each) for driver, each in found.items()} == dict.fromkeys(DRIVERS, 2)
    return found


@pytest.fixture(autouse=True)
def as_before(nics: dict[str, list[Function]]) -> Iterator[None]:
    """Checks that each function has its driver, no override, and an interface; restores it for the next tests."""
    yield
    wrong = []
    for driver, functions in nics.items():
        for each in functions:
            state = each.state()
            if state != (driver, "", True):
                wrong.append(f"{each.address}: {state}")
                each.give(driver)
    assert not wrong, "not as before: " + ", ".join(wrong)


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Makes a driver on this machine, with these functions as its GPUs."""
    with ExitStack() as stack:

        def make(*gpus: Function, seconds: float = 1.0) -> Rig:
            stack.enter_context(shown_as_gpus(list(gpus), tmp_path))
            return Rig(tmp_path, gpus, seconds=seconds)

        yield make


@pytest.fixture
def gpu(nics: dict[str, list[Function]]) -> Function:
    """A function that can have virtual functions, alone in its IOMMU group."""
    return nics["igb"][0]


@pytest.fixture
def rig(make_rig: Callable[..., Rig], gpu: Function) -> Rig:
    """A driver with one GPU."""
    return make_rig(gpu)
