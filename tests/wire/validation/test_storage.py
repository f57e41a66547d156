from __future__ import annotations

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import Problem, ProblemType
from dra_sdk.wire.validation.storage import decoded, without_disabled
from tests.wire.validation.objects import claim, device, request, resource_slice, taint_rule

NOW = "2026-01-01T00:00:00Z"
TAINT = {"key": "example.com/hot", "effect": "NoSchedule"}
OLD = ServerProfile.of("1.35")
NEW = ServerProfile.of("1.36")


def read(obj, profile=NEW):
    found, problems = decoded(obj, profile, NOW)
    assert found is not None
    assert problems == []
    return found


def test_defaults_and_canonical_quantities():
    body = resource_slice(device(capacity={"a": {"value": "2048Ki"}}, taints=[TAINT]))
    (found,) = read(body)["spec"]["devices"]
    assert found["capacity"] == {"a": {"value": "2Mi"}}
    assert found["taints"] == [{**TAINT, "timeAdded": NOW}]
    assert read(claim())["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1


def test_a_time_that_is_given_stays():
    given = {**TAINT, "timeAdded": "2020-01-01T00:00:00Z"}
    assert read(resource_slice(device(taints=[given])))["spec"]["devices"][0]["taints"] == [given]
    rule = taint_rule(taint=given)
    assert read(rule, ServerProfile.of("1.37"))["spec"]["taint"] == given


def test_decoding_what_is_decoded_changes_nothing():
    found = read(claim(request(tolerations=[{"key": "a"}], capacity={"requests": {"m": "1024Mi"}})))
    assert read(found) == found


def test_unknown_fields_are_told_and_forgotten():
    found, problems = decoded(claim(request(colour="red")), NEW, NOW)
    assert found == read(claim())
    field = "spec.devices.requests[0].exactly.colour"
    assert problems == [Problem(field, ProblemType.UNKNOWN, "unknown field")]


def test_a_wrong_type_cannot_be_read():
    found, problems = decoded(claim(request(count="1")), NEW, NOW)
    assert found is None
    assert [problem.type for problem in problems] == [ProblemType.TYPE_INVALID]


def test_free_form_json_is_left_alone():
    parameters = {"a": None, "b": [None, {"c": 1.0}], "kind": "K"}
    body = claim(config=[{"opaque": {"driver": "d.example.com", "parameters": parameters}}])
    assert read(body)["spec"]["devices"]["config"][0]["opaque"]["parameters"] == parameters


def test_what_a_gate_drops_is_dropped_unless_it_was_in_use():
    body, plain = resource_slice(device(taints=[TAINT])), resource_slice(device())
    assert without_disabled(body, None, OLD) == plain
    assert without_disabled(body, plain, OLD) == plain
    assert without_disabled(body, body, OLD) == body
    assert without_disabled(body, None, NEW) == body


def test_features_are_dropped_one_by_one():
    body = resource_slice(device(taints=[TAINT], allowMultipleAllocations=True))
    stored = resource_slice(device(allowMultipleAllocations=True))
    assert without_disabled(body, stored, OLD) == stored
