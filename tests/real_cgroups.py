"""Cgroups of this machine for tests, removed afterwards. Making them needs root and a cgroup file system."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dra_sdk.hardware.cgroups import Cgroup
from dra_sdk.hardware.node_access import Command, NodeAccess, SystemEffects
from tests.waiting import wait


@contextmanager
def real_cgroups() -> Iterator[Callable[[str], Cgroup]]:
    """Makes cgroups; each has a random part in its name. The test is skipped if this machine has none to change."""
    node, made = NodeAccess(Path("/"), SystemEffects()), list[Cgroup]()

    def make(name: str) -> Cgroup:
        made.append(Cgroup(node, f"{name}-{secrets.token_hex(4)}"))
        return made[-1]

    probe = make("probe").enclose(Command(["true"])).cgroups
    if not probe or not all((each / "cgroup.procs").exists() for each in probe):
        pytest.skip("this machine has no cgroups, or this user may not change them")
    try:
        yield make
    finally:
        for each in made:
            node.effects.kill(each.processes(), force=True)
            wait(lambda cgroup=each: not cgroup.processes())
            each.remove()
        for directory in probe:
            with suppress(OSError):  # other tests have cgroups there
                directory.parent.rmdir()
