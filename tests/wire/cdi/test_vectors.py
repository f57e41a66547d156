"""The upstream tables of the CDI library that are about specs, versions, names and edits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dra_sdk.errors import InvalidObjectError
from dra_sdk.wire.cdi import parse_qualified_name, split_kind
from dra_sdk.wire.cdi.names import split_device
from dra_sdk.wire.cdi.reading import check_spec, read_spec
from dra_sdk.wire.cdi.validation import device_problems, edits_problems, minimum_version, version_problem
from tests.vectors import ROOT

JSON = dict[str, Any]

VECTORS = ROOT / "cdi-cases"
SIMULATOR = "applying edits, and the cache of a runtime, are the simulator's"
LEGACY = "annotations and OCI devices ask for CDI devices where there is no DRA; the kubelet passes CDI IDs by CRI"
LEFT_OUT = {
    "cdi.TestAppend": SIMULATOR,
    "cdi.TestApplyContainerEdits": SIMULATOR,
    "cdi.TestCacheTransientSpecs": SIMULATOR,
    "cdi.TestCacheWriteSpec": SIMULATOR,
    "cdi.TestInjectDevice": SIMULATOR,
    "cdi.TestListVendorsAndClasses": SIMULATOR,
    "cdi.TestNewCache": SIMULATOR,
    "cdi.TestRefreshCache": SIMULATOR,
    "cdi.TestScanSpecDirs": SIMULATOR,
    "cdi.TestAnnotationKey": LEGACY,
    "cdi.TestParseAnnotation": LEGACY,
    "cdi.TestUpdateAnnotations": LEGACY,
    "cmd.TestCollectCDIDevicesFromOCISpec": LEGACY,
}
SCORED = {
    "cdi.TestDeviceValidate": 3,
    "cdi.TestGetters": 4,
    "cdi.TestNewSpec": 9,
    "cdi.TestReadSpec": 4,
    "cdi.TestRequiredVersion": 18,
    "cdi.TestValidateContainerEdits": 28,
    "cdi.TestWriteSpec": 5,
    "parser.TestQualifiedName": 16,
    "specs_test.TestMinimumRequiredVersion": 13,
    "specs_test.TestValidateVersion": 10,
}


def cases(test: str) -> list[Any]:
    files = sorted((VECTORS / test).glob("*.json"))
    assert len(files) == SCORED[test], f"{VECTORS}/{test} has {len(files)} cases"
    return [pytest.param(json.loads(file.read_text())["case"], id=file.stem) for file in files]


def accepted(content: str) -> bool:
    try:
        read_spec(content.encode(), "spec.yaml")
    except InvalidObjectError:
        return False
    return True


def test_every_table_is_scored_or_left_out_with_its_reason():
    assert {path.name for path in VECTORS.iterdir() if path.is_dir()} == set(SCORED) | set(LEFT_OUT)


@pytest.mark.parametrize("case", cases("cdi.TestReadSpec") + cases("cdi.TestNewSpec"))
def test_specs_are_accepted_as_by_the_library(case: JSON):
    refused = case["unparsable"] or case["invalid"] or case.get("schemaFail", False)
    assert accepted(case["data"]) is not refused


@pytest.mark.parametrize("case", cases("cdi.TestGetters"))
def test_vendor_and_class_are_those_of_the_library(case: JSON):
    assert accepted(case["data"]) is not case["invalid"]
    if not case["invalid"]:
        spec = read_spec(case["data"].encode(), "spec.yaml")
        assert split_kind(spec["kind"]) == (case["vendor"], case["class"])


@pytest.mark.parametrize("case", cases("cdi.TestWriteSpec"))
def test_what_was_read_is_written_and_read_again(case: JSON):
    assert accepted(case["data"]) is not case["invalid"]
    if not case["invalid"]:
        spec = read_spec(case["data"].encode(), "spec.yaml")
        assert read_spec(json.dumps(spec).encode(), "spec.json") == spec


@pytest.mark.parametrize("case", cases("cdi.TestDeviceValidate"))
def test_devices_are_accepted_as_by_the_library(case: JSON):
    assert bool(list(device_problems(case["device"]))) is case["invalid"]


@pytest.mark.parametrize("case", cases("cdi.TestValidateContainerEdits"))
def test_edits_are_accepted_as_by_the_library(case: JSON):
    edits = case["edits"] or {}
    assert bool(list(edits_problems(edits))) is case["invalid"]
    spec = {
        "cdiVersion": "1.1.0",
        "kind": "vendor.com/class",
        "devices": [{"name": "d", "containerEdits": {"env": ["A="]}}],
    }
    spec["containerEdits"] = edits
    if case["invalid"]:
        with pytest.raises(InvalidObjectError):
            check_spec(spec)
    else:
        assert check_spec(spec)["containerEdits"] == edits


@pytest.mark.parametrize("case", cases("cdi.TestRequiredVersion"))
def test_the_required_version_is_that_of_the_library(case: JSON):
    assert minimum_version(case["spec"]) == case["expectedVersion"]


@pytest.mark.parametrize("case", cases("specs_test.TestMinimumRequiredVersion"))
def test_the_minimum_version_is_that_of_the_library(case: JSON):
    assert minimum_version(case["spec"]) == case["want"]


@pytest.mark.parametrize("case", cases("specs_test.TestValidateVersion"))
def test_declared_versions_are_accepted_as_by_the_library(case: JSON):
    assert bool(version_problem({**case["spec"], "cdiVersion": case["version"]})) is bool(case["wantErr"])


@pytest.mark.parametrize("case", cases("parser.TestQualifiedName"))
def test_qualified_names_are_split_as_by_the_library(case: JSON):
    parts = (case["vendor"], case["class"], case["name"])
    assert split_device(case["device"]) == parts
    if case["isQualified"]:
        assert parse_qualified_name(case["device"]) == parts
    else:
        with pytest.raises(InvalidObjectError, match="must"):
            parse_qualified_name(case["device"])
