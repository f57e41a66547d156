"""What an author imports: complete, sorted, typed, documented and cheap to import."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dra_sdk

HEAVY = ("grpc", "google.protobuf", "kubernetes", "yaml", "prometheus_client", "urllib3", "asyncio")


def imported_by(module: str) -> set[str]:
    """The modules that a fresh interpreter holds after importing one."""
    code = f"import json, sys; import {module}; print(json.dumps(sorted(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_all_is_sorted_and_unique() -> None:
    assert list(dra_sdk.__all__) == sorted(set(dra_sdk.__all__))


def test_everything_in_all_can_be_imported_and_nothing_public_is_left_out() -> None:
    for name in dra_sdk.__all__:
        assert getattr(dra_sdk, name) is not None, name
    public = {name for name, value in vars(dra_sdk).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public == set(dra_sdk.__all__)


def test_every_public_class_is_documented() -> None:
    for name in dra_sdk.__all__:
        value = getattr(dra_sdk, name)
        if inspect.isclass(value):
            assert value.__doc__, name
            assert not value.__doc__.startswith(f"{name}("), f"{name} has a generated docstring only"


@pytest.mark.parametrize("module", ["dra_sdk", "dra_sdk.loader", "dra_sdk.node.prepare.engine"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    loaded = imported_by(module)
    assert module in loaded
    assert sorted(loaded & set(HEAVY)) == []


def test_a_driver_without_hooks_about_containers_loads_nothing_of_nri() -> None:
    loaded = imported_by("dra_sdk.node.runtime.process")
    assert "google.protobuf" in loaded
    assert [each for each in loaded if "nri" in each or each.startswith("dra_sdk.hardware")] == []


def test_the_package_is_marked_as_typed() -> None:
    assert (Path(dra_sdk.__file__).parent / "py.typed").is_file()


def test_every_module_says_what_it_is_for() -> None:
    root = Path(dra_sdk.__file__).parent
    for path in root.rglob("*.py"):
        if path.name.endswith("_pb2.py"):
            continue
        head = path.read_text(encoding="utf-8").lstrip()
        assert head.startswith('"""'), path


@pytest.mark.parametrize("name", ["model", "wire", "kube", "hardware", "node.prepare", "node.kubelet", "node.runtime"])
def test_every_package_can_be_imported_by_itself(name: str) -> None:
    assert importlib.import_module(f"dra_sdk.{name}")
