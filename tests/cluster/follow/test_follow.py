"""The comparison with a release, on documents, sources and reports made by hand; no cluster is needed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dra_sdk.wire.profile import ServerProfile
from tests.cluster.follow import api_facts, cel_functions, comparisons, suites
from tests.cluster.follow.cel_functions import Candidates, Macro
from tests.cluster.follow.report import Difference, Part, Report
from tests.cluster.harness.cache import Version
from tests.cluster.harness.errors import HarnessError

NEWEST = Version(37, 0)
METRICS = """\
# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="DRAAdminAccess",stage=""} 1
kubernetes_feature_enabled{name="DRANewThing",stage="ALPHA"} 0
kubernetes_feature_enabled{name="SidecarContainers",stage=""} 1
"""


def told(differences: Sequence[Difference]) -> list[str]:
    return [f"{each.area} {each.name}: {each.what}" for each in differences]


def defaults() -> dict[str, bool]:
    """The gates of a server that is as this package says."""
    profile = ServerProfile.of("1.37")
    return {name: profile.enabled(name) for name in api_facts.GATES}


def test_gates_about_devices_are_read_from_metrics() -> None:
    assert api_facts.gates(METRICS) == {"DRAAdminAccess": True, "DRANewThing": False}


def test_a_server_as_this_package_says_has_no_difference() -> None:
    assert not list(api_facts.compare_gates(defaults(), NEWEST))


def test_new_gates_other_defaults_and_lost_gates_are_told() -> None:
    server = {**defaults(), "DRANewThing": False, "DRAListTypeAttributes": True}
    del server["DRAAdminAccess"]
    assert told(list(api_facts.compare_gates(server, NEWEST))) == [
        "feature gate DRAListTypeAttributes: on by default; here it is off",
        "feature gate DRANewThing: new, off by default",
        "feature gate DRAAdminAccess: gone: the release does not have it, or no longer",
    ]


def document(fields: dict[str, object]) -> dict[str, object]:
    kind = {"group": "resource.k8s.io", "version": "v1", "kind": "DeviceClass"}
    schemas = {
        "io.k8s.api.resource.v1.DeviceClass": {
            "properties": {
                "kind": {},
                "metadata": {},
                "spec": {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.resource.v1.Spec"}]},
            },
            "x-kubernetes-group-version-kind": [kind],
        },
        "io.k8s.api.resource.v1.DeviceClassList": {
            "properties": {"items": {}},
            "x-kubernetes-group-version-kind": [{**kind, "kind": "DeviceClassList"}],
        },
        "io.k8s.api.resource.v1.Spec": {"properties": fields},
        "io.k8s.api.resource.v1.Config": {"properties": {"opaque": {"type": "object"}}},
    }
    return {"components": {"schemas": schemas}}


def test_fields_are_paths_through_lists_and_maps() -> None:
    inner = {"$ref": "#/components/schemas/io.k8s.api.resource.v1.Config"}
    fields = {"config": {"items": {"allOf": [inner]}}, "named": {"additionalProperties": inner}}
    assert api_facts.server_fields({"v1": document(fields)}) == {
        "DeviceClass": {"spec", "spec.config", "spec.config.opaque", "spec.named", "spec.named.opaque"}
    }


def test_the_newest_version_of_a_kind_counts() -> None:
    documents = {"v1beta1": document({"old": {}}), "v1": document({"new": {}})}
    assert api_facts.server_fields(documents) == {"DeviceClass": {"spec", "spec.new"}}


def test_only_the_outermost_of_new_and_lost_fields_is_told() -> None:
    ours = {"DeviceClass": {"spec", "spec.old"}, "ResourceClaim": {"spec"}}
    server = {"DeviceClass": {"spec", "spec.new", "spec.new.part"}, "Other": {"spec"}}
    assert told(list(api_facts.compare_fields(server, ours))) == [
        "kind Other: new: this package does not read it",
        "kind ResourceClaim: gone: the release does not serve it",
        "field DeviceClass.spec.new: new: this package does not know it",
        "field DeviceClass.spec.old: gone: the release does not have it",
    ]


def test_our_fields_are_those_of_the_release() -> None:
    skipped = "spec.skipNodeOperations"
    before, since = (api_facts.our_fields(minor)["ResourceSlice"] for minor in (36, 37))
    assert "spec.devices.capacity.value" in before
    assert skipped not in before
    assert skipped in since


SOURCE = """
const bindMacro = "bind"
var lib = map[string]thing{"isSorted": {cel.MemberOverload("list_is_sorted")}, "ip.isCanonical": {}}
cel.ReceiverMacro(bindMacro, 3, celBind),
cel.ReceiverMacro("sortBy", 2, sortBy),
cel.ReceiverVarArgMacro("least", mathLeast),
"""


def test_candidates_are_the_quoted_names_and_the_macros_of_sources() -> None:
    found = cel_functions.candidates([SOURCE])
    assert {"isSorted", "ip.isCanonical", "bind"} <= found.functions
    assert {Macro("bind", 3), Macro("sortBy", 2), Macro("least", 1), Macro("least", 4)} <= found.macros


def test_a_module_without_sources_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="no Go sources"):
        list(cel_functions.read_sources([tmp_path]))


def test_sources_are_read_without_tests(tmp_path: Path) -> None:
    (tmp_path / "ext").mkdir()
    (tmp_path / "ext" / "lists.go").write_text("lists")
    (tmp_path / "ext" / "lists_test.go").write_text("tests")
    assert list(cel_functions.read_sources([tmp_path])) == ["lists"]


def test_our_compiler_knows_its_functions_and_macros() -> None:
    judge = cel_functions.our_judge(ServerProfile.of("1.37"))
    names = ["size", "ip.isCanonical", "sets.contains", "string", "nothing"]
    assert cel_functions.declared_functions(names, judge) == {"size", "ip.isCanonical", "sets.contains", "string"}
    macros = {Macro("all", 2), Macro("sortBy", 2), Macro("bind", 3), Macro("optMap", 2), Macro("least", 2)}
    assert cel_functions.declared_macros(macros, judge) == macros - {Macro("least", 2)}


def test_more_names_than_selectors_are_asked_in_pieces() -> None:
    asked: list[int] = []

    def judge(expressions: Sequence[str]) -> list[str]:
        asked.append(len(expressions))
        return ["undeclared reference"] * len(expressions)

    assert not cel_functions.declared_functions([f"f{number}" for number in range(70)], judge)
    assert asked == [32, 32, 6]


def test_functions_of_one_side_are_told() -> None:
    def compiler(*known: str):
        def judge(expressions: Sequence[str]) -> list[str]:
            names = [re.sub(r"\(.*", "", text).rpartition(".")[2] for text in expressions]
            return [f"overload for '{n}'" if n in known else f"undeclared reference to '{n}'" for n in names]

        return judge

    found = Candidates(frozenset({"newer", "same"}), frozenset())
    differences = cel_functions.compare(found, compiler("newer", "same"), compiler("same", "older"), ["older"])
    assert told(list(differences)) == [
        "CEL function newer: new: this package does not know it",
        "CEL function older: gone: the release does not know it",
    ]


def test_disagreements_about_objects_are_grouped_by_field() -> None:
    texts = [
        "#1: create ResourceSlice\n    .spec.x = 1\n  refused fields: real alone [('spec.devices[3].name', 'Invalid')]",
        "#2: create ResourceSlice\n  refused fields: real alone [('spec.devices[0].name', 'Invalid')], ours alone []",
        "#3: update ResourceClaim status\n    .status.devices[0] = 7\n  taken or not",
    ]
    assert told(list(comparisons.by_field(texts, "all"))) == [
        "validation ResourceClaim.status.devices: judged differently, gates: all, 1 cases",
        "validation ResourceSlice.spec.devices.name: judged differently, gates: all, 2 cases",
    ]


def test_default_gates_are_those_of_the_release() -> None:
    assert comparisons.scheduler_gates("1.36.3", "all")["DRAListTypeAttributes"]
    assert not comparisons.scheduler_gates("1.36.3", "default")["DRAListTypeAttributes"]
    assert comparisons.scheduler_gates("1.37.1", "default")["DRADeviceTaintRules"]


def test_each_gate_of_a_feature_is_known() -> None:
    assert set(comparisons.GATE_OF.values()) <= set(api_facts.GATES)


def test_failed_tests_are_told_with_the_gates_that_they_name() -> None:
    suite = ET.fromstring(
        '<testsuites><testsuite><testcase classname="tests.cluster.test_x" name="test_a"/>'
        '<testcase classname="tests.cluster.test_x" name="test_b"><failure message="assert 1 == 2&#10;more">'
        "gate DRADeviceTaints is off</failure></testcase>"
        '<testcase classname="tests.cluster.test_x" name="test_c"><skipped/></testcase></testsuite></testsuites>'
    )
    done, found = suites.read_results("kubelet", suite)
    assert done == "2 tests"
    assert told(found) == ["kubelet test_x::test_b: assert 1 == 2 (about DRADeviceTaints)"]


def test_the_report_has_parts_differences_and_a_status() -> None:
    report = Report("1.38.0", [Part("gates", "9 feature gates", 2.0), Part("fields", error="no server")])
    assert report.status == 2
    report.parts[1] = Part("fields", "3 fields", 1.0, [Difference("field", "A.b", "new", [str(n) for n in range(7)])])
    assert report.status == 1
    assert report.text().splitlines() == [
        "Kubernetes 1.38.0",
        "",
        "gates   no difference: 9 feature gates, 2 s",
        "fields  1 difference: 3 fields, 1 s",
        "",
        "field",
        "  A.b: new",
        *(f"      {number}" for number in range(5)),
        "      and 2 more",
    ]
    assert json.loads(report.json())["parts"][1]["differences"][0]["name"] == "A.b"
    del report.parts[1]
    assert report.status == 0
