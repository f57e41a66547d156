"""Cgroups of this machine for tests, removed afterwards. Making them needs root and a cgroup file system."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from dra_sdk.hardware.cgroups import Cgroup
from dra_sdk.hardware.node_access import Command, NodeAccess, SystemEffects
from dra_sdk.testing.waiting import wait


def _is_empty(cgroup: Cgroup) -> bool:
    return not cgroup.processes()


@contextmanager
def real_cgroups() -> Iterator[Callable[[str], Cgroup]]:
    """Yield a function that makes cgroups, whose names have a random part; skip the test if this machine has none."""
    node, made = NodeAccess(Path("/"), SystemEffects()), list[Cgroup]()

    def make(name: str) -> Cgroup:
        made.append(Cgroup(node, f"{name}-{secrets.token_hex(4)}"))
        return made[-1]

    probe = make("probe").enclose(Command(["true"])).cgroups
    if not probe or not all((path / "cgroup.procs").exists() for path in probe):
        pytest.skip("this machine has no cgroups, or this user may not change them")
    try:
        yield make
    finally:
        for cgroup in made:
            node.effects.kill(cgroup.processes(), force=True)
            wait(partial(_is_empty, cgroup))
            cgroup.remove()
        for directory in probe:
            with suppress(OSError):  # other tests have cgroups there
                directory.parent.rmdir()
