"""The checks as tests in the suite of a driver: one test for each check.

Load the plugin with `-p dra_sdk.tools.conformance.pytest_plugin` or in the topmost conftest.py, name the driver, and
call the check:

    @pytest.fixture(scope="session")
    def dra_target() -> Target:
        return Target(driver="my_driver:MyDriver")

    def test_conformance(dra_check: Callable[[], None]) -> None:
        dra_check()

Without a test of your own, `--pyargs dra_sdk.tools.conformance.pytest_suite --dra-command '…'` does the same. Checks
that do not apply or cannot run are skipped, and so is a failed `should` unless `--dra-strict` is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from dra_sdk.tools.conformance.check import Check, Result, Severity, Status, run_check
from dra_sdk.tools.conformance.checks import select
from dra_sdk.tools.conformance.report import failure_lines
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.conformance.target import Target

FIXTURE: Final = "dra_check"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `dra-sdk conformance` that choose the driver and the checks."""
    group = parser.getgroup("dra", "conformance of a DRA driver")
    group.addoption("--dra-driver", default="", help="a driver of dra-sdk: an installed name, or module:Class")
    group.addoption("--dra-command", default="", help="a command line that starts any driver")
    group.addoption("--dra-registry", type=Path, help="the registration directory of a running driver")
    group.addoption("--dra-kubeconfig", type=Path, help="an API server to use instead of the embedded one")
    group.addoption("--dra-host-root", type=Path, default=Path("/"), help="the directory with the host's files")
    group.addoption("--dra-claim", type=Path, help="a file with the ResourceClaim to request devices by")
    group.addoption("--dra-nri", action="store_true", help="the driver is an NRI plugin")
    group.addoption("--dra-level", default="", help="levels or checks, separated by commas (default: all)")
    group.addoption("--dra-strict", action="store_true", help="a failed `should` fails its test")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test for each check."""
    if FIXTURE in metafunc.fixturenames:
        names = metafunc.config.getoption("--dra-level").split(",")
        checks = select(name for name in names if name)
        metafunc.parametrize(FIXTURE, checks, ids=[check.id for check in checks], indirect=True)


@pytest.fixture(scope="session")
def dra_target(request: pytest.FixtureRequest) -> Target:
    """Return the driver that the options name; override this fixture to name it in code."""
    option = request.config.getoption
    return Target(
        driver=option("--dra-driver"),
        command=option("--dra-command"),
        registry=option("--dra-registry"),
        kubeconfig=option("--dra-kubeconfig"),
        host_root=option("--dra-host-root"),
        claim=option("--dra-claim"),
        nri=option("--dra-nri"),
    )


@pytest.fixture(scope="session")
def dra_run(dra_target: Target) -> Iterator[Run]:
    """Yield the run for all checks of the session."""
    with dra_target.open() as run:
        yield run


@pytest.fixture
def dra_check(request: pytest.FixtureRequest, dra_run: Run) -> Callable[[], None]:
    """Call it to run the check of this test."""
    check: Check = request.param
    strict = bool(request.config.getoption("--dra-strict"))
    return lambda: report_result(run_check(dra_run, check), strict=strict)


def report_result(result: Result, *, strict: bool = False) -> None:
    """Pass, fail or skip the current test according to the result."""
    if result.failed and (strict or result.check.severity is Severity.MUST):
        pytest.fail("\n".join(failure_lines(result)), pytrace=False)
    if result.failed:
        pytest.skip(f"should, but does not: {result.reason}")
    if result.status is not Status.PASSED:
        pytest.skip(f"{result.status.value}: {result.reason}")
