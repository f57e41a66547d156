from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import ObjectSource, SnapshotReadError, read_snapshot
from dra_sdk.tools.scheduling.cluster.snapshot_reader import (
    ADMIN_ACCESS_LABEL,
    admin_access_refusal,
    assumed_admin_access,
    requests_admin_access,
)
from dra_sdk.wire.documents import Document, read_documents
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.cluster.objects import claim, obj, request, template


def test_requests_for_admin_access():
    assert requests_admin_access(claim("a", request(), request("b", adminAccess=True)))
    assert requests_admin_access(template("a", request(adminAccess=True)))
    assert not requests_admin_access(claim("a"))
    assert not requests_admin_access(claim("a", {"name": "r", "firstAvailable": [{"name": "x"}]}))
    assert not requests_admin_access(obj("ResourceClaim", "a", {}))


def test_namespaces_that_allow_admin_access():
    assert admin_access_refusal(obj("Namespace", "a", labels={ADMIN_ACCESS_LABEL: "true"})) == ""
    assert admin_access_refusal(obj("Namespace", "a", labels={ADMIN_ACCESS_LABEL: "false"})).endswith("; a has none")
    assert admin_access_refusal(obj("Namespace", "a")).startswith(
        f"admin access is only granted in namespaces with the label {ADMIN_ACCESS_LABEL}"
    )
    assert assumed_admin_access("a").endswith("; namespace a is not given and is assumed to have it")


CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: train}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu
"""


def read(*texts: str, version: str = "1.37", **gates: bool):
    sources = [
        ObjectSource(f"{index}.yaml", read_documents(text.encode(), f"{index}.yaml"))
        for index, text in enumerate(texts)
    ]
    return read_snapshot(sources, ServerProfile.of(version, gates))


def problems(*texts: str, version: str = "1.37") -> list[str]:
    with pytest.raises(SnapshotReadError) as caught:
        read(*texts, version=version)
    return list(caught.value.problems)


def test_an_object_is_read_as_the_server_stores_it():
    (claim,) = read(CLAIM).snapshot.claims
    assert claim["metadata"]["namespace"] == "default"
    assert claim["metadata"]["uid"] == read(CLAIM).snapshot.claims[0]["metadata"]["uid"]
    exactly = claim["spec"]["devices"]["requests"][0]["exactly"]
    assert exactly == {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}


def test_fields_that_a_server_always_stores_are_added():
    text = "apiVersion: resource.k8s.io/v1\nkind: {}\nmetadata: {{name: a}}\nspec: {}\n"
    assert read(text.format("ResourceClaim", "{}")).snapshot.claims[0]["spec"] == {"devices": {}}
    class_without_spec = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: a}\n"
    assert read(class_without_spec).snapshot.classes[0]["spec"] == {}
    template = read(text.format("ResourceClaimTemplate", "{spec: {}}")).snapshot.templates[0]
    assert template["spec"] == {"spec": {"devices": {}}}


def test_objects_of_a_list_and_of_other_kinds():
    text = (
        'kind: List\nitems: [{"apiVersion": v1, "kind": Node, metadata: {name: n1}}, {apiVersion: v1, kind: Service}]\n'
    )
    reading = read(text)
    assert list(reading.snapshot.nodes_by_name) == ["n1"]
    assert dict(reading.ignored_kinds) == {"Service": 1}


def test_generate_name_is_resolved():
    text = "apiVersion: v1\nkind: Pod\nmetadata: {generateName: job-}\nspec: {}\n"
    first, second = read(text + "---\n" + text).snapshot.pods
    assert first["metadata"]["name"].startswith("job-")
    assert first["metadata"]["name"] != second["metadata"]["name"]


def test_each_problem_has_file_line_object_and_field():
    wrong = CLAIM.replace("deviceClassName: gpu", "deviceClassName: gpu\n        count: two")
    missing = "kind: ResourceClaim\napiVersion: resource.k8s.io/v1\nmetadata: {name: b}\n"
    lines = problems(wrong, missing + "spec: {devices: {requests: [{name: A, exactly: {}}]}}\n")
    assert lines[0] == (
        "0.yaml:10: ResourceClaim/train: spec.devices.requests[0].exactly.count: must be a whole number, is 'two'"
    )
    assert lines[1].startswith("1.yaml:4: ResourceClaim/b: spec.devices.requests[0].name: ")
    assert lines[2].startswith("1.yaml:4: ResourceClaim/b: spec.devices.requests[0].exactly.deviceClassName: ")


def test_a_cel_error_points_at_its_column():
    selector = CLAIM + "        selectors:\n        - cel:\n            expression: |-\n"
    selector += '              device.driver == "a" &&\n                device.atributes["x"].y\n'
    (line,) = problems(selector)
    place, expression, pointer = line.split("\n")
    field = "spec.devices.requests[0].exactly.selectors[0].cel.expression"
    assert place.startswith(f"0.yaml:12: ResourceClaim/train: {field}: line 2, column ")
    assert expression == '      device.atributes["x"].y'
    column = int(place.split("column ")[1].split(":")[0])
    assert pointer == " " * (4 + column - 1) + "^"
    assert expression[4 + column - 1 :].startswith((".atributes", "atributes"))


def test_an_expression_that_is_too_costly_is_a_problem():
    costly = (
        "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a != d))))"
    )
    (line,) = problems(CLAIM + f"        selectors: [{{cel: {{expression: '{costly}'}}}}]\n")
    assert "too complex" in line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1]\n", "0.yaml:1: object: must be an object, is [1]"),
        ("kind: Pod\napiVersion: v1\n", "0.yaml:1: Pod/*: metadata.name: name or generateName must be set"),
        ("kind: Pod\napiVersion: v1\nmetadata: 3\n", "0.yaml:3: Pod/*: metadata: must be an object, is 3"),
        ("kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: [1]\n", "0.yaml:4: Pod/p: spec: must be an object"),
        (
            "kind: Node\napiVersion: v1\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: much}}\n",
            "0.yaml:4: Node/n1: status.allocatable.cpu: must be a quantity such as 4, 500m or 80Gi, is 'much'",
        ),
        ("kind: ResourceSlice\nmetadata: {name: s}\n", "0.yaml:1: ResourceSlice/s: apiVersion: must be"),
        ("metadata: {name: s}\n", "0.yaml:1: object/s: kind: must be set"),
        (
            "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {resourceClaims: [{name: a, claimName: b}]}\n",
            "0.yaml:4: Pod/p: spec.resourceClaims[0].claimName: unknown field",
        ),
    ],
)
def test_invalid_objects_are_reported_with_their_location(text, expected):
    assert problems(text)[0].startswith(expected)


def test_a_duplicate_object_is_a_problem():
    (line,) = problems(CLAIM, "---\n" + CLAIM)
    assert line == "1.yaml:4: ResourceClaim/train: is also defined at 0.yaml:3"


def test_fields_that_a_server_drops_are_dropped_with_a_warning():
    text = CLAIM + "        tolerations: [{operator: Exists}]\n"
    reading = read(text, version="1.35")
    (warning,) = reading.warnings
    assert warning.startswith("0.yaml:10: ResourceClaim/train: spec.devices.requests[0].exactly.tolerations: dropped")
    assert "tolerations" not in reading.snapshot.claims[0]["spec"]["devices"]["requests"][0]["exactly"]
    assert read(text, version="1.35", DRADeviceTaints=True).warnings == ()


def test_fields_dropped_from_many_devices_have_one_warning():
    devices = ", ".join(f"{{name: d{number}, taints: [{{key: k, effect: NoSchedule}}]}}" for number in range(3))
    spec = f"{{driver: d, pool: {{name: p, resourceSliceCount: 1}}, nodeName: n1, devices: [{devices}]}}"
    text = f"apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: s}}\nspec: {spec}\n"
    (warning,) = read(text, version="1.35").warnings
    off = "dropped by the server, whose feature gate DRADeviceTaints is off (and 2 more such fields)"
    assert warning == f"0.yaml:4: ResourceSlice/s: spec.devices[0].taints: {off}"


def test_the_object_must_be_valid_after_dropping_fields():
    alternatives = "spec: {devices: {requests: [{name: a, firstAvailable: [{name: b, deviceClassName: gpu}]}]}}\n"
    text = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\n" + alternatives
    assert read(text).warnings == ()
    with pytest.raises(SnapshotReadError, match=r"requests\[0\]"):
        read(text, DRAPrioritizedList=False)


def test_a_dropped_field_is_named_before_what_is_invalid_without_it():
    devices = "[{name: d0, attributes: {a: {ints: [1]}}}]"
    spec = f"{{driver: d, pool: {{name: p, resourceSliceCount: 1}}, nodeName: n1, devices: {devices}}}"
    lines = problems(f"apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: s}}\nspec: {spec}\n")
    assert [line.partition("ResourceSlice/s: ")[2] for line in lines] == [
        "spec.devices[0].attributes[a].ints: dropped by the server, whose feature gate DRAListTypeAttributes is off",
        "spec.devices[0].attributes[a]: must have exactly one value, has none",
    ]


def test_objects_of_a_cluster_are_not_validated():
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a", "uid": "u"}}
    reading = read_snapshot([ObjectSource("https://server", [Document(claim | {"spec": {"new": 1}})], stored=True)])
    assert reading.snapshot.claims[0]["spec"] == {"new": 1}


def test_an_object_that_is_not_from_a_file_has_no_line():
    with pytest.raises(SnapshotReadError) as caught:
        read_snapshot([ObjectSource("driver x", [Document({"kind": "ResourceSlice", "metadata": {"name": "s"}})])])
    assert caught.value.problems[0].startswith("driver x: ResourceSlice/s: apiVersion: ")


ADMIN = CLAIM + "        adminAccess: true\n"
NAMESPACE = "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: default, labels: {{{}}}}}\n"


def test_admin_access_needs_a_label_of_the_namespace():
    assert read(ADMIN, NAMESPACE.format('resource.kubernetes.io/admin-access: "true"')).warnings == ()
    (line,) = problems(ADMIN, NAMESPACE.format("a: b"))
    assert line.startswith("0.yaml:4: ResourceClaim/train: admin access is only granted in namespaces with the label")
    (warning,) = read(ADMIN).warnings
    assert warning.endswith("namespace default is not given and is assumed to have it")


def test_an_unknown_function_refuses_its_selector_and_not_the_file():
    selector = "        selectors: [{cel: {expression: 'device.later() == 1'}}]\n"
    reading = read(CLAIM + selector)
    assert [claim["metadata"]["name"] for claim in reading.snapshot.claims] == ["train"]
    (warning,) = reading.warnings
    assert "undeclared reference to 'later': a later release may have this function" in warning
    assert problems(CLAIM + selector.replace("device.later()", "device.drivr"))
