"""What an author imports: complete, sorted, typed, documented and cheap to import."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import dra_sdk
import dra_sdk.extensions
import dra_sdk.nri
import dra_sdk.settings

PUBLIC = (dra_sdk, dra_sdk.settings, dra_sdk.nri, dra_sdk.extensions)
HEAVY = ("grpc", "google.protobuf", "kubernetes", "yaml", "prometheus_client", "urllib3", "asyncio")


def imported_by(module: str) -> set[str]:
    """The modules that a fresh interpreter holds after importing one."""
    code = f"import json, sys; import {module}; print(json.dumps(sorted(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("module", PUBLIC)
def test_all_is_sorted_and_unique(module: ModuleType) -> None:
    assert list(module.__all__) == sorted(set(module.__all__))


@pytest.mark.parametrize("module", PUBLIC)
def test_everything_in_all_can_be_imported_and_nothing_public_is_left_out(module: ModuleType) -> None:
    public = {name for name, value in vars(module).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public == set(module.__all__)


def test_each_name_is_public_in_one_module() -> None:
    count = Counter(name for module in PUBLIC for name in module.__all__)
    assert {name for name, modules in count.items() if modules > 1} == set()


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_class_is_documented(module: ModuleType) -> None:
    for name in module.__all__:
        value = getattr(module, name)
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
