"""The kit on a driver of another language: the benchmark's, on the Go library. Run by hand; it needs Go."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dra_sdk.tools.conformance.check import Status, run_checks
from dra_sdk.tools.conformance.checks import CHECKS, NRI_LEVELS
from dra_sdk.tools.conformance.target import Target
from tests.bench.godriver_build import ensure_godriver
from tests.cluster.harness.cache import Cache
from tests.cluster.harness.control_plane import ControlPlaneSettings, control_plane
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.progress import Progress

DOCUMENT = Path(__file__).parents[2] / "docs/conformance-results.md"
VERSION = "1.36.3"
NAME = "go.bench.dra-sdk.example"


@pytest.fixture(scope="module")
def command() -> str:
    try:
        binary = ensure_godriver(Cache.from_env(), Progress())
    except HarnessError as error:
        pytest.skip(str(error))
    flags = "--node-name={node_name} --kubeconfig={kubeconfig} --registry-dir={registry_dir} --cdi-dir={cdi_dir}"
    return f"{binary} --driver-name={NAME} --plugin-dir={{plugins_dir}}/{NAME} {flags}"


def documented() -> set[str]:
    """The checks that the documentation says this driver fails."""
    (row,) = re.findall(r"^\| the benchmark's Go driver .*$", DOCUMENT.read_text(), re.MULTILINE)
    return set(re.findall(r"[A-Z]+-\d{3}", row))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("server", ["embedded", "real"])
def test_the_go_driver_fails_what_the_documentation_says(server: str, command: str, tmp_path: Path) -> None:
    if server == "embedded":
        results = _results(Target(command=command))
    else:
        with control_plane("conformance", tmp_path, ControlPlaneSettings(VERSION), Progress()) as running:
            results = _results(Target(command=command, kubeconfig=running.kubeconfig("admin")))
    assert {ident for ident, status in results.items() if status is Status.FAILED} == documented()
    assert sum(status is Status.PASSED for status in results.values()) > len(results) * 0.8


def _results(target: Target) -> dict[str, Status]:
    checks = [check for check in CHECKS if check.level not in NRI_LEVELS]
    with target.open() as run:
        return {each.check.id: each.status for each in run_checks(run, checks)}
