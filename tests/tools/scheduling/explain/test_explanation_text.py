from __future__ import annotations

from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.explain import Explainer, explain, format_explanation, format_explanations
from dra_sdk.tools.scheduling.explain.explanation import (
    Conflict,
    ExplainedDevice,
    Explanation,
    FailedDevices,
    FunnelStage,
    NodeReport,
    PodExplanation,
    RequestReport,
    SuggestedChange,
)
from dra_sdk.tools.scheduling.explain.explanation_text import (
    failure_summary,
    list_devices,
    node_reason,
    request_reason,
    success_summary,
)
from tests.tools.scheduling.explain import situations


def report(*stages: FunnelStage, needed: int | None = 2, devices: int = 4) -> RequestReport:
    return RequestReport("gpu", "big", needed, 9, devices, stages, stages[-1].kept if stages else devices, enough=False)


def test_each_kind_of_reason():
    assert (
        request_reason(report(FunnelStage("class", "selector 0", 0)))
        == "request gpu: none of 4 devices is of class big"
    )
    used = FunnelStage("use", "", 1, (FailedDevices("in use", 3, "a"),))
    assert request_reason(report(used)) == "request gpu: 1 of 4 free (3 in use), 2 needed"
    values = FunnelStage(
        "selector", "selector 1", 0, (FailedDevices("fail x", 3, "a", ("memory is 1Gi", "memory is 2Gi", "more")),)
    )
    assert request_reason(report(values)) == (
        "request gpu: none of 4 devices passes selector 1 (memory is 1Gi, memory is 2Gi)"
    )
    assert request_reason(report(FunnelStage("class", "", 1, (FailedDevices("x", 3, "a"),)), used)).startswith(
        "request gpu: 1 of 4 of class big"
    )


def test_too_few_devices_from_the_start():
    assert request_reason(report(devices=1)) == "request gpu: 1 device accessible from the node, 2 needed"
    assert request_reason(report(FunnelStage("class", "", 0), devices=0)) == "request gpu: there is no device"


def test_all_devices():
    stages = (
        FunnelStage("class", "", 3, (FailedDevices("x", 1, "a"),)),
        FunnelStage("use", "", 1, (FailedDevices("in use", 2, "a"),)),
    )
    assert request_reason(report(*stages, needed=None)) == (
        "request gpu: all 3 matching devices are needed, 2 are not available (2 in use)"
    )


def test_the_decisive_reason_of_a_node():
    failing = report(FunnelStage("class", "", 0))
    assert node_reason(NodeReport(("n",), False, rejection="cordoned", error="e")) == "cordoned"
    assert node_reason(NodeReport(("n",), False, error="e", requests=(failing,))) == "e"
    assert node_reason(NodeReport(("n",), False, conflicts=(Conflict("devices", "too few"),))) == "too few"
    assert node_reason(NodeReport(("n",), False)) == "the devices that are left cannot be allocated together"


def test_devices():
    got = (
        ExplainedDevice("a", "d.io/n1/x"),
        ExplainedDevice("a", "d.io/n1/y"),
        ExplainedDevice("a", "d.io/n1/z"),
        ExplainedDevice("b", "d.io/rack/7/w", admin=True),
    )
    assert list_devices(got, "n1") == "a gets x, y and z; b gets d.io/rack/7/w (admin access)"
    assert success_summary("claim c", got[:1], "n1") == "claim c can be allocated on n1: a gets x"
    assert success_summary("claim c", (), "n1") == "claim c can be allocated on n1: it requests no devices"
    assert success_summary("claim c", (), "") == "claim c can be allocated: it requests no devices"
    assert failure_summary("claim c", ()) == "claim c cannot be allocated: there are no nodes"


KEY = ("default", "c")


def test_a_whole_explanation():
    assert (
        format_explanation(explain(situations.memory(), KEY))
        == """\
claim c cannot be allocated on any of 7 nodes: request gpu: none of 4 devices passes selector 0 (memory is 40Gi)

on a0, and the same on a1, a2, a3 and 1 more:
  request gpu: 1 device of class gpu.nvidia.com
      6 accessible from the node, of 26 in the cluster
      4 of class gpu.nvidia.com
      0 pass selector 0
          - 4 fail device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0
              memory is 40Gi
      → 0 left, 1 needed

on l0, and the same on l1:
  request gpu: 1 device of class gpu.nvidia.com
      2 accessible from the node, of 26 in the cluster
      2 of class gpu.nvidia.com
      0 pass selector 0
          - 2 fail device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0
              memory is 24Gi
          - 2 fail device.attributes["gpu.nvidia.com"].productName == "A100" (column 78)
              productName is "L4"
      → 0 left, 1 needed

What would help, the smallest change first:
  1. request gpu, selector 0: change "80Gi" to "40Gi"
"""
    )


def test_a_conflict():
    lines = format_explanation(explain(situations.aligned(), KEY)).splitlines()
    assert "      → 2 left: gpu-2, gpu-3" in lines
    at = lines.index(
        "  constraint 0 (matchAttribute resource.kubernetes.io/pcieRoot): no value is shared by enough devices"
    )
    assert lines[at + 1 : at + 3] == ["    gpu: pci0000:02, pci0000:03", "    nic: pci0000:00, pci0000:01"]
    assert lines[-2] == "  2. claim old-gpu-0 releases its devices (gpu-0 on n1) (or old-gpu-1, old-nic-2, old-nic-3)"


def test_a_claim_that_can_be_allocated():
    shown = format_explanation(explain(situations.alternatives(), KEY))
    assert shown.startswith("claim c can be allocated on n1: gpu/two gets gpu-0 and gpu-1\n")
    assert "What would help" not in shown


def test_a_pod():
    shown = format_explanation(Explainer(schedule(situations.together())).pod("p"))
    assert shown.startswith("pod p cannot run: ")
    assert "\nclaim a of pod p can" in shown
    assert "\nclaim c of pod p cannot be allocated on n1" in shown


def test_an_error_ends_the_search():
    shown = format_explanation(explain(situations.partly_error(), KEY))
    assert "The scheduler reports this as an error for the pod and tries no other node." in shown


def test_nothing_helps():
    reports = tuple(NodeReport((f"n{index}",), False, rejection=f"reason {index}") for index in range(6))
    shown = format_explanation(Explanation("c", False, "claim c cannot be allocated", reports=reports, tried=3))
    assert "on n3:\n  reason 3\n" in shown
    assert "reason 4" not in shown
    assert "\nand 2 more nodes; -o yaml shows all\n" in shown
    assert shown.endswith("No small change helps; 3 changes were tried.\n")


def test_many_changes_are_truncated():
    changes = tuple(SuggestedChange("count", f"change {index}", "n", others=tuple("abcdef")) for index in range(9))
    shown = format_explanation(Explanation("c", False, "no", changes=changes, tried=9))
    assert "  6. change 5 (or a, b, c and 3 more)\n  and 3 more\n" in shown


def waiting(name: str, change: SuggestedChange) -> PodExplanation:
    claim = f"{name}-gpu-x7"
    explained = Explanation(claim, False, f"claim {claim} of pod {name} waits", pod=name, changes=(change,), tried=1)
    return PodExplanation(name, False, f"pod {name} cannot run", claims=(explained,))


def test_pods_that_differ_only_in_names_share_an_explanation():
    smaller = SuggestedChange("COUNT", "1 device instead of 2", "n", "ResourceClaim c")
    of_class = SuggestedChange("CLASS", "class big, selector 0: remove x", "n", "DeviceClass big")
    alike = [waiting(name, smaller) for name in ("web-1", "web-10", "web-2", "web-3", "web-4")]
    assert format_explanations([*alike[:2], waiting("other", of_class), *alike[2:]]) == (
        "pod web-1 cannot run\n\nclaim web-1-gpu-x7 of pod web-1 waits\n\n"
        "What would help, the smallest change first:\n  1. 1 device instead of 2\n\n"
        "The same is true of 4 more pods: web-10, web-2, web-3 and 1 more\n\n"
        "pod other cannot run\n\nclaim other-gpu-x7 of pod other waits\n\n"
        "What would help, the smallest change first:\n"
        "  1. class big, selector 0: remove x (for every claim of the class)\n"
    )
    assert format_explanations(alike[:2]).endswith("The same is true of 1 more pod: web-10\n")
    claims = [explanation.claims[0] for explanation in alike[:2]]
    assert format_explanations(claims).endswith("The same is true of 1 more claim: web-10-gpu-x7\n")
    assert format_explanations([]) == ""
