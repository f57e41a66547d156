"""The stub library, and a server that answers its calls from a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dra_driver_gpu.testing.nvml_stub import GoldenAnswers, StubServer, build_stub

_NOT_IN_OLD = (
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
    "nvmlDeviceGetAddressingMode",
)


@pytest.fixture(scope="session")
def stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("stub"))


@pytest.fixture(scope="session")
def old_functions() -> tuple[str, ...]:
    """Functions that an old driver lacks."""
    return _NOT_IN_OLD


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of a driver with MIG but without the second versions of structures."""
    return build_stub(tmp_path_factory.mktemp("old"), without=_NOT_IN_OLD)


@pytest.fixture(scope="session")
def golden_server() -> Iterator[tuple[GoldenAnswers, StubServer]]:
    answers = GoldenAnswers()
    with StubServer(answers) as server:
        yield answers, server


@pytest.fixture
def golden(golden_server: tuple[GoldenAnswers, StubServer], monkeypatch: pytest.MonkeyPatch) -> GoldenAnswers:
    answers, server = golden_server
    answers.answers, answers.calls = {}, []
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return answers
