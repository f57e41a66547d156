"""The size of the node wing: modules, lines, third-party packages. `make lint` runs `python -m tests.node_wing`."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

import grimp

SDK, WING = "dra_sdk", "dra_sdk.node"


@dataclass(frozen=True)
class Size:
    """The size of some modules.

    modules: the number of modules.
    lines: the number of their lines.
    """

    modules: int
    lines: int

    @classmethod
    def of(cls, modules: set[str]) -> Size:
        """Counts the files of modules."""
        return cls(len(modules), sum(len(_path(each).read_text().splitlines()) for each in modules))


@dataclass(frozen=True)
class NodeWing:
    """What runs as root on every node.

    own: the modules of `dra_sdk.node`.
    imported: these and every module of the SDK that they import, directly or not.
    packages: the third-party packages that these import, by import name.
    """

    own: Size
    imported: Size
    packages: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"node wing: {self.own.modules} modules, {self.own.lines} lines; "
            f"with all that they import of the SDK {self.imported.modules} modules, {self.imported.lines} lines, "
            f"and of others {', '.join(self.packages)}"
        )


def measure() -> NodeWing:
    """Follows the imports, lazy ones too."""
    graph = grimp.build_graph(SDK, include_external_packages=True, cache_dir=None)
    own = {WING} | graph.find_descendants(WING)
    reached = own.union(*(graph.find_upstream_modules(each) for each in own))
    inside = {each for each in reached if each.split(".")[0] == SDK}
    outside = {each.split(".")[0] for each in reached - inside}
    return NodeWing(Size.of(own), Size.of(inside), tuple(sorted(outside - sys.stdlib_module_names)))


def _path(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)


if __name__ == "__main__":
    print(measure())
