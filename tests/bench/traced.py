"""`dra-sdk` with a clock around the steps of a prepare: where its time goes, written to a file at the end.

`python -m tests.bench.traced FILE run ...`; the benchmark's `--trace` uses it. Times are inclusive; the clocks cost
some microseconds per call, so only their proportions count.
"""

from __future__ import annotations

import functools
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

STEPS = (
    "dra_sdk.node.kubelet.draplugin:_Version._answer_each_claim",
    "dra_sdk.node.prepare.engine:Preparer.prepare",
    "dra_sdk.node.prepare.engine:Preparer.unprepare",
    "dra_sdk.node.runtime.claims_api:ApiConnection.fetch",
    "dra_sdk.kube.client:KubeClient.get",
    "dra_sdk.kube.http:ConnectionPool.request",
    "dra_sdk.kube.http:HttpResponse.read_head",
    "dra_sdk.node.prepare.allocation:read_status",
    "dra_sdk.node.prepare.allocation:read",
    "dra_sdk.node.prepare.allocation:refuse_taken",
    "dra_sdk.node.prepare.engine:HookRun.call_hook",
    "dra_sdk.node.prepare.checkpoint:Checkpoint.completed",
    "dra_sdk.node.prepare.checkpoint:build_spec",
    "dra_sdk.node.prepare.cdi_specs:CdiSpecs.write",
    "dra_sdk.node.prepare.cdi_specs:CdiSpecs.ensure",
    "dra_sdk.node.prepare.cdi_specs:CdiSpecs.remove",
    "dra_sdk.node.prepare.checkpoint_store:CheckpointStore.put",
    "dra_sdk.node.prepare.checkpoint_store:CheckpointStore.get",
    "dra_sdk.node.prepare.checkpoint_store:CheckpointStore.delete",
    "dra_sdk.node.prepare.checkpoint_store:encode",
    "dra_sdk.node.files:Files.write",
    "dra_sdk.node.files:Files.remove",
    "os:fsync",
)
"""What gets a clock: `module:name` or `module:Class.method`, where it is looked up when it is called."""


class Clocks:
    """The durations of each step, in the order of the calls."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = defaultdict(list)

    def wrap(self, step: str) -> None:
        """Put a clock around a function or method."""
        module, _, path = step.partition(":")
        owner: Any = import_module(module)
        *classes, name = path.split(".")
        for each in classes:
            owner = getattr(owner, each)
        setattr(owner, name, self._timed(path, getattr(owner, name)))

    def table(self) -> str:
        """One line per step: calls, median and sum."""
        lines = [f"{'step':32} {'calls':>7} {'p50 ms':>8} {'sum ms':>9}"]
        for name, seconds in self._seconds.items():
            lines.append(f"{name:32} {len(seconds):7} {median(seconds) * 1000:8.3f} {sum(seconds) * 1000:9.1f}")
        return "\n".join(lines) + "\n"

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._seconds[name].append(time.perf_counter() - began)

        return timed


def main() -> int:
    """Run `dra-sdk` with the remaining arguments, then write the table."""
    from dra_sdk.cli.main import main as run  # noqa: PLC0415 (after the arguments are known)

    output, clocks = Path(sys.argv[1]), Clocks()
    for step in STEPS:
        clocks.wrap(step)
    try:
        return run(sys.argv[2:])
    finally:
        output.write_text(clocks.table())


if __name__ == "__main__":
    sys.exit(main())
