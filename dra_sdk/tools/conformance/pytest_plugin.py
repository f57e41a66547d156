"""The checks as tests of a driver author's own suite: one test for each check.

Load it with `-p dra_sdk.tools.conformance.pytest_plugin` or from the top conftest.py, say which driver, and call the
check:

    @pytest.fixture(scope="session")
    def dra_target() -> Target:
        return Target(driver="my_driver:MyDriver")

    def test_conformance(dra_check: Callable[[], None]) -> None:
        dra_check()

Without a test of one's own, `--pyargs dra_sdk.tools.conformance.pytest_suite --dra-command '…'` does the same. What is
not applicable or could not be run is skipped, as is a recommendation that is not followed unless `--dra-strict`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_sdk.tools.conformance.catalog import select
from dra_sdk.tools.conformance.check import Check, Result, Severity, Status
from dra_sdk.tools.conformance.report.text import failure
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.conformance.runner import run_check
from dra_sdk.tools.conformance.target import Target

FIXTURE = "dra_check"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `dra-sdk conformance` that say which driver and which checks."""
    group = parser.getgroup("dra", "conformance of a DRA driver")
    group.addoption("--dra-driver", default="", help="a driver of dra-sdk: an installed name, or module:Class")
    group.addoption("--dra-command", default="", help="a command line that starts any driver")
    group.addoption("--dra-registry", type=Path, help="the registration directory of a driver that runs already")
    group.addoption("--dra-kubeconfig", type=Path, help="an API server to use instead of the embedded one")
    group.addoption("--dra-host-root", type=Path, default=Path("/"), help="where the host's files are found")
    group.addoption("--dra-claim", type=Path, help="a file with a ResourceClaim to ask for devices by")
    group.addoption("--dra-level", default="", help="levels or checks, with commas between them (default all)")
    group.addoption("--dra-strict", action="store_true", help="what should hold must hold")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each check."""
    if FIXTURE in metafunc.fixturenames:
        names = metafunc.config.getoption("--dra-level").split(",")
        checks = select(name for name in names if name)
        metafunc.parametrize(FIXTURE, checks, ids=[check.id for check in checks], indirect=True)


@pytest.fixture(scope="session")
def dra_target(request: pytest.FixtureRequest) -> Target:
    """The driver that the options name; override it to name one in code."""
    option = request.config.getoption
    return Target(
        driver=option("--dra-driver"),
        command=option("--dra-command"),
        registry=option("--dra-registry"),
        kubeconfig=option("--dra-kubeconfig"),
        host_root=option("--dra-host-root"),
        claim=option("--dra-claim"),
    )


@pytest.fixture(scope="session")
def dra_run(dra_target: Target) -> Iterator[Run]:
    """The driver and its site, for all checks of the session."""
    with dra_target.open() as run:
        yield run


@pytest.fixture
def dra_check(request: pytest.FixtureRequest, dra_run: Run) -> Callable[[], None]:
    """Call it to run the check that this test is about."""
    check: Check = request.param
    strict = bool(request.config.getoption("--dra-strict"))
    return lambda: judge(run_check(dra_run, check), strict=strict)


def judge(result: Result, *, strict: bool = False) -> None:
    """End the test as the result says."""
    if result.failed and (strict or result.check.severity is Severity.MUST):
        pytest.fail("\n".join(failure(result)), pytrace=False)
    if result.failed:
        pytest.skip(f"should, and does not: {result.reason}")
    if result.status is not Status.PASSED:
        pytest.skip(f"{result.status.value}: {result.reason}")
