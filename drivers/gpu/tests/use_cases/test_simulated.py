"""The nodes of the examples are what the driver publishes, and every use case has the same result on the driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from dra_driver_gpu.testing.examples import NODES, ExampleNode, document

EXAMPLES = Path(__file__).parents[4] / "docs/examples"
CASES = sorted(path.stem for path in (EXAMPLES / "gpu-use-cases").glob("*.yaml"))
Simulate = Callable[..., list[dict[str, Any]]]


@pytest.mark.parametrize("name", NODES)
def test_the_node_of_an_example_is_what_the_driver_publishes(name: str, tmp_path: Path) -> None:
    made = document(NODES[name], tmp_path)
    assert (EXAMPLES / "nodes" / f"{name}.yaml").read_text() == made, (
        "run python -m dra_driver_gpu.testing.examples docs/examples/nodes"
    )


def test_there_are_twelve_use_cases() -> None:
    assert [case.partition("-")[0] for case in CASES] == [f"{number:02}" for number in range(1, 13)]


@pytest.mark.parametrize("case", CASES)
def test_a_use_case_on_what_the_driver_discovers(
    case: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    simulate: Simulate,
    case_node: Callable[[str], ExampleNode],
) -> None:
    node, manifest = case_node(case), EXAMPLES / "gpu-use-cases" / f"{case}.yaml"
    node.write(tmp_path / "root")
    for name, value in node.settings.items():
        monkeypatch.setenv(name, value)
    others = tmp_path / "others.yaml"
    others.write_text(yaml.safe_dump_all(node.other_objects()))
    driver = ("--driver", "dra_driver_gpu:GpuDriver", "--fixture", tmp_path / "root", "--node", node.name)
    discovered = simulate(others, manifest, *driver)
    file = next(EXAMPLES / "nodes" / f"{name}.yaml" for name, example in NODES.items() if example is node)
    assert _devices(discovered) == _devices(simulate(file, manifest))
    assert any(_devices(discovered).values())


def _devices(claims: list[dict[str, Any]]) -> dict[str, list[tuple[str, str]]]:
    return {
        claim["metadata"]["name"]: [
            (result["request"], result["device"])
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        ]
        for claim in claims
    }
