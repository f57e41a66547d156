from __future__ import annotations

import pytest

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.explain import explain
from dra_sdk.tools.scheduling.explain.allocation_problem import AllocationProblem
from dra_sdk.tools.scheduling.explain.claim_changes import constraint_changes, request_changes, selector_changes
from dra_sdk.tools.scheduling.explain.request_inspection import RequestInspector
from dra_sdk.tools.scheduling.explain.trials import ChangeSize, ProposedChange, with_value
from tests.tools.scheduling.clusters import GPU, NIC, claim, cluster, device_class, exactly, pool_slice
from tests.tools.scheduling.explain.situations import A100, BIG, inspected, problem_of


def proposals(problem: AllocationProblem) -> list[ProposedChange]:
    return [proposal for one in inspected(problem) for proposal in request_changes(problem.claim, one, problem.nodes)]


def test_tolerations():
    (proposal,) = proposals(problem_of("tainted"))
    toleration = {"key": "gpu.nvidia.com/xid", "operator": "Equal", "value": "79", "effect": "NoExecute"}
    assert (proposal.field, proposal.before, proposal.after) == (
        "spec.devices.requests[0].exactly.tolerations", None, [toleration],
    )  # fmt: skip
    assert proposal.object == "ResourceClaim c"


def test_amounts_that_are_left_on_a_device():
    assert [(proposal.before, proposal.after) for proposal in proposals(problem_of("shared"))] == [
        ("16", "12"),
        ("16", "8"),
    ]


@pytest.mark.parametrize(
    ("policy", "asked", "proposed"),
    [
        ({"default": "1", "validValues": ["1"]}, "8", ["1"]),
        ({"validValues": ["1", "2", "4", "8"]}, "16", ["4"]),
        ({"validRange": {"min": "1", "step": "2"}}, "9", ["5"]),
        ({"validRange": {"min": "1", "max": "2"}}, "8", ["2"]),
        ({"validRange": {"min": "8"}}, "16", []),
        ({"default": "1"}, "8", ["6"]),
        ({}, "8", ["6"]),
    ],
)
def test_amounts_that_the_request_policy_of_a_device_allows(policy: JSON, asked: str, proposed: list[str]):
    capacity = {"cpu": {"value": "6", "requestPolicy": policy}}
    devices = [{"name": "numa-0", "allowMultipleAllocations": True, "capacity": capacity}]
    wanted = claim("c", exactly("cpu", "cpu", capacity={"requests": {"cpu": asked}}))
    explained = explain(cluster(pool_slice("n1", "dra.cpu", devices), device_class("cpu"), wanted), "c")
    assert [change.after for change in explained.changes if change.kind == "amount"] == proposed


def test_counts():
    problem = problem_of("taken")
    assert [proposal.text for proposal in proposals(problem)] == ["request gpu: 1 device instead of 2"]
    changed = proposals(problem)[0].apply(problem)
    assert changed.claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    assert problem.claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2


def test_a_count_instead_of_mode_all():
    (proposal,) = proposals(problem_of("everything"))
    assert proposal.after["count"] == 3
    assert proposals(problem_of("too_many"))[0].after["count"] == 32


def test_constraints():
    problem = problem_of("aligned")
    (proposal,) = constraint_changes(problem.claim, problem.nodes)
    assert (proposal.field, proposal.after) == ("spec.devices.constraints[0]", None)
    assert proposal.apply(problem).parsed_claim.constraints == []


H100 = 'device.attributes["gpu.nvidia.com"].productName == "H100"'


def selector_proposals(
    *selectors: str, cls: str = GPU, name: str = "memory"
) -> tuple[AllocationProblem, list[ProposedChange]]:
    problem = problem_of(name).with_changes(claims=(claim("c", exactly("gpu", cls, *selectors)),))
    (request,) = problem.parsed_claim.requests
    inspector, node = RequestInspector(problem), problem.nodes[0]
    devices = [candidate for candidate in problem.inventory.node_devices(node).candidates if candidate.id.driver == GPU]
    inspection = inspector.inspect(problem.parsed_claim, request, node)
    return problem, list(selector_changes(problem, inspection, list(inspector.selectors(request)), devices, [node]))


def test_another_constant_or_a_conjunct_removed():
    problem, proposals = selector_proposals(f"{A100} && {BIG}")
    assert [proposal.text for proposal in proposals] == [
        'request gpu, selector 0: change "80Gi" to "40Gi"',
        f"request gpu, selector 0: remove {BIG}",
    ]
    assert proposals[0].after == f"{A100} && {BIG}".replace("80Gi", "40Gi")
    assert proposals[1].after == f"{A100} && true"
    assert proposals[0].parts == proposals[1].parts
    assert all(proposal.apply(problem).allocate_on(problem.nodes[0]).fits for proposal in proposals)


def test_two_conjuncts_of_two_selectors():
    problem, proposals = selector_proposals(BIG, H100)
    assert [proposal.text for proposal in proposals] == [
        'request gpu, selector 0: change "80Gi" to "40Gi"; request gpu, selector 1: change "H100" to "A100"',
        f"request gpu, selector 0: remove {BIG}; request gpu, selector 1: remove {H100}",
    ]
    assert [proposal.size for proposal in proposals] == [ChangeSize.CONSTANT, ChangeSize.CONJUNCT]
    for proposal in proposals:
        assert proposal.apply(problem).allocate_on(problem.nodes[0]).fits


def test_two_conjuncts_of_one_selector():
    problem, proposals = selector_proposals(f"{BIG} && {H100}")
    assert [proposal.text for proposal in proposals] == [
        'request gpu, selector 0: change "80Gi" to "40Gi" and change "H100" to "A100"',
        f"request gpu, selector 0: remove {BIG} and {H100}",
    ]
    assert proposals[0].after == f"{BIG} && {H100}".replace("80Gi", "40Gi").replace("H100", "A100")
    assert proposals[1].after == "true && true"
    for proposal in proposals:
        assert proposal.apply(problem).allocate_on(problem.nodes[0]).fits


def test_a_conjunct_without_a_constant_is_removed():
    other = 'device.attributes["gpu.nvidia.com"].productName.startsWith("H")'
    problem, proposals = selector_proposals(f"{H100} && {other}")
    assert proposals[0].text == f'request gpu, selector 0: change "H100" to "A100" and remove {other}'
    assert proposals[0].size is ChangeSize.CONJUNCT
    assert proposals[0].extent < proposals[1].extent
    assert proposals[0].apply(problem).allocate_on(problem.nodes[0]).fits


def test_another_value_in_a_list():
    problem, proposals = selector_proposals('device.attributes["gpu.nvidia.com"].productName in ["H100"]')
    assert proposals[0].text == 'request gpu, selector 0: change "H100" to "A100"'
    assert proposals[0].apply(problem).allocate_on(problem.nodes[0]).fits


def test_a_change_of_the_class():
    problem = problem_of("memory")
    expression = 'device.attributes["gpu.nvidia.com"].productName == "H100"'
    cls = with_value(problem.classes[GPU], ("spec", "selectors", 0, "cel", "expression"), expression)
    problem = problem.with_changes(classes=problem.classes | {GPU: cls}, claims=(claim("c", exactly("gpu", GPU)),))
    inspector, node = RequestInspector(problem), problem.nodes[0]
    (request,) = problem.parsed_claim.requests
    devices = [candidate for candidate in problem.inventory.node_devices(node).candidates if candidate.id.driver == GPU]
    inspection = inspector.inspect(problem.parsed_claim, request, node)
    proposals = list(selector_changes(problem, inspection, list(inspector.selectors(request)), devices, [node]))
    assert {proposal.size for proposal in proposals} == {ChangeSize.CLASS}
    assert proposals[0].object == f"DeviceClass {GPU}"
    assert proposals[0].text == f'class {GPU}, selector 0: change "H100" to "A100"'
    assert proposals[0].apply(problem).allocate_on(problem.nodes[0]).fits
    assert not problem.allocate_on(problem.nodes[0]).fits, "the class itself is as it was"


def test_no_devices_of_another_driver():
    assert selector_proposals(cls=NIC)[1] == []
    assert selector_proposals('device.driver == "nic.example.com"')[1] == []


def test_the_domain_that_the_device_has():
    problem, proposals = selector_proposals('device.attributes["x.example.com"].productName == "A100"')
    (proposal,) = (proposal for proposal in proposals if proposal.size == ChangeSize.DOMAIN)
    assert proposal.after == 'device.attributes["gpu.nvidia.com"].productName == "A100"'
    assert proposal.apply(problem).allocate_on(problem.nodes[0]).fits


def test_a_missing_attribute():
    _, proposals = selector_proposals('device.attributes["x.example.com"].fast && true')
    guard = 'has(device.attributes["x.example.com"].fast)'
    assert proposals[0].after == f'({guard} && device.attributes["x.example.com"].fast) && true'
    assert proposals[1].text.endswith('remove device.attributes["x.example.com"].fast')


def test_an_invalid_expression_has_no_conjuncts():
    assert selector_proposals("device.nothing")[1] == []
