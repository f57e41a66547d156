"""The machine's GPUs, through NVML and through nvidia-smi. The tests change no setting of a GPU.

DRA_GPU_DRIVER_ROOT  where the NVIDIA driver is installed, / by default
"""

from __future__ import annotations

import csv
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dra_driver_gpu.driver import GpuDriver
from dra_driver_gpu.nvidia_node import NvidiaNode
from dra_driver_gpu.nvml.real import RealNvml
from dra_driver_gpu.settings import GpuSettings

from dra_sdk import Node

Query = Callable[..., list[dict[str, str]]]


@pytest.fixture(scope="session")
def node() -> NvidiaNode:
    return GpuDriver(GpuSettings.read()).nvidia_node(Node("here", Path("/")))


@pytest.fixture(scope="session")
def smi(node: NvidiaNode) -> Query:
    """What nvidia-smi prints about each GPU, by the names of its fields."""

    def query(*fields: str) -> list[dict[str, str]]:
        command = node.driver_command("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
        environment = {**os.environ, **command.env}
        done = subprocess.run(command.argv, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        rows = csv.reader(done.stdout.splitlines(), skipinitialspace=True)
        return [dict(zip(fields, row, strict=True)) for row in rows]

    return query


@pytest.fixture
def nvml(node: NvidiaNode) -> Iterator[RealNvml]:
    with node.nvml() as opened:
        assert isinstance(opened, RealNvml)
        yield opened


SETTINGS = ("persistence_mode", "compute_mode", "mig.mode.current", "mig.mode.pending", "ecc.mode.current")


@pytest.fixture(autouse=True)
def _settings_stay(smi: Query) -> Iterator[None]:
    before = smi("uuid", *SETTINGS)
    yield
    assert smi("uuid", *SETTINGS) == before


@pytest.fixture(scope="session")
def sum_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that adds vectors on each GPU and prints its UUID; see sum.c."""
    program = tmp_path_factory.mktemp("program") / "sum"
    source = Path(__file__).with_name("sum.c")
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    return program
