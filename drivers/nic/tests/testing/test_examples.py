"""The examples: their node is what the driver publishes, and the driver understands their configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dra_driver_nic import NicConfig
from dra_driver_nic.testing.examples import FILE, MACHINE, document

from dra_sdk.testing import FakeNode

pytest_plugins = ["dra_sdk.testing.plugin"]
EXAMPLES = Path(__file__).parents[4] / "docs/examples"
README = Path(__file__).parents[2] / "README.md"


def test_the_node_of_the_examples_is_what_the_driver_publishes(tmp_path: Path) -> None:
    committed = (EXAMPLES / "nodes" / FILE).read_text(encoding="utf-8")
    assert committed == document(tmp_path), "run python -m dra_driver_nic.testing.examples docs/examples/nodes"


def parameters(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the configurations of this driver in an object."""
    if isinstance(value, dict):
        opaque = value.get("opaque")
        if isinstance(opaque, dict) and opaque.get("driver") == "dra.net":
            yield opaque["parameters"]
        for child in value.values():
            yield from parameters(child)
    elif isinstance(value, list):
        for child in value:
            yield from parameters(child)


def yaml_blocks(text: str) -> list[str]:
    return [block.partition("```")[0] for block in text.split("```yaml\n")[1:]]


SOURCES = {
    **{path.stem: [path.read_text(encoding="utf-8")] for path in sorted((EXAMPLES / "nic").glob("*.yaml"))},
    "README": yaml_blocks(README.read_text(encoding="utf-8")),
}


@pytest.mark.parametrize("source", SOURCES)
def test_the_driver_understands_the_configuration_of_an_example(source: str) -> None:
    documents = [document for text in SOURCES[source] for document in yaml.safe_load_all(text)]
    for config in parameters(documents):
        NicConfig.model_validate({key: value for key, value in config.items() if key not in {"apiVersion", "kind"}})
        assert (config["apiVersion"], config["kind"]) == ("dra.net/v1alpha1", "NicConfig")


def test_the_policy_of_the_readme_selects_and_labels_devices(dra_node: FakeNode, tmp_path: Path) -> None:
    MACHINE.write(dra_node)
    (policy,) = [block for block in yaml_blocks(README.read_text(encoding="utf-8")) if "DeviceOverlay" in block]
    file = tmp_path / "policy.yaml"
    file.write_text(policy, encoding="utf-8")
    command = [sys.executable, "-m", "dra_sdk.cli.main", "discover", "nic", "-o", "yaml"]
    command += ["--host-root", str(dra_node.root), "--overlay-file", str(file), "--node-name", "net-1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "overlay" not in done.stderr
    devices = [device for published in yaml.safe_load_all(done.stdout) for device in published["spec"]["devices"]]
    rails = {device["name"]: device["attributes"].get("topology.example.com/rail", {}).get("int") for device in devices}
    assert rails == {
        "pci-0000-3b-00-2": 0,
        "pci-0000-3b-00-3": 0,
        "pci-0000-9e-00-2": 1,
        "pci-0000-9e-00-3": 1,
    }
