"""One list of processes out of the three that NVML keeps."""

from __future__ import annotations

from collections.abc import Callable

from dra_driver_gpu.nvml.errors import FunctionNotFoundError, NotSupportedError
from dra_driver_gpu.nvml.values import Process


def all_processes(*lists: Callable[[], list[Process]]) -> list[Process]:
    """The processes of all lists, each pid once; a list that GPU or driver do not keep counts as empty."""
    found: dict[int, Process] = {}
    for ask in lists:
        try:
            found.update({process.pid: process for process in ask()})
        except (NotSupportedError, FunctionNotFoundError):
            continue
    return list(found.values())
