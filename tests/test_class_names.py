"""A class name stands for one thing, in the SDK and the bundled drivers; where two classes share one, here is why."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
API = "what an author writes, and the object of the API that it becomes"
CORE = "what an author meets, and the object of core/v1 as the scheduler reads it"
KIND = "one kind of configuration, which the drivers of two vendors have"
AUDIT = "the audit log has the names of errors"
SHARED = {
    "AllocatedDevice": "a device of an allocation, as a driver reads it and as a test writes it",
    "Condition": API,
    "Container": CORE,
    "CounterSet": API,
    "Device": API,
    "DeviceTaint": API,
    "GpuConfig": KIND,
    "InUseError": AUDIT,
    "Node": CORE,
    "NotFoundError": AUDIT,
    "ResourcePool": API,
    "VfioDeviceConfig": KIND,
    "_Plain": "the same writer of YAML in two distributions",
}


def test_each_class_has_a_name_of_its_own() -> None:
    modules = defaultdict(list)
    for folder in ("dra_sdk", "drivers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if "tests" in relative.parts or path.stem.endswith("_pb2"):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    modules[node.name].append(str(relative))
    assert len(modules) > 500
    shared = {name: places for name, places in modules.items() if len(places) > 1}
    unexpected = {name: places for name, places in shared.items() if name not in SHARED}
    assert unexpected == {}, "give the newer class a name that says what it is"
    assert SHARED.keys() - shared.keys() == set(), "these no longer share a name"
