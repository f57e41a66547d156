from __future__ import annotations

from dra_sdk.tools.scheduling.explain import explain, explain_pod, text
from dra_sdk.tools.scheduling.explain.model import Change, Explanation, NodeReport
from tests.tools.scheduling.explain import situations

KEY = ("default", "c")


def test_a_whole_explanation():
    assert (
        text(explain(situations.memory(), KEY))
        == """\
claim c cannot be had on any of 7 nodes: request gpu: of 4 devices none passes selector 0 (memory is 40Gi)

on a0, and alike on a1, a2, a3 and 1 more:
  request gpu: 1 device of class gpu.nvidia.com
      6 within reach of the node, of 26 in the cluster
      4 of class gpu.nvidia.com
      0 pass selector 0
          - 4 fail device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0
              memory is 40Gi
      → 0 left, 1 needed

on l0, and alike on l1:
  request gpu: 1 device of class gpu.nvidia.com
      2 within reach of the node, of 26 in the cluster
      2 of class gpu.nvidia.com
      0 pass selector 0
          - 2 fail device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0
              memory is 24Gi
          - 2 fail device.attributes["gpu.nvidia.com"].productName == "A100" (column 78)
              productName is "L4"
      → 0 left, 1 needed

What would help, the smallest change first:
  1. request gpu, selector 0: 40Gi instead of 80Gi
"""
    )


def test_a_conflict():
    lines = text(explain(situations.aligned(), KEY)).splitlines()
    assert "      → 2 left: gpu-2, gpu-3" in lines
    at = lines.index(
        "  constraint 0 (matchAttribute resource.kubernetes.io/pcieRoot): no value is shared by enough devices"
    )
    assert lines[at + 1 : at + 3] == ["    gpu: pci0000:02, pci0000:03", "    nic: pci0000:00, pci0000:01"]
    assert lines[-2] == "  2. claim old-gpu-0 gives its devices back (gpu-0 on n1) (or old-gpu-1, old-nic-2, old-nic-3)"


def test_a_claim_that_can_be_had():
    shown = text(explain(situations.alternatives(), KEY))
    assert shown.startswith("claim c can be had on n1: gpu/two gets gpu-0 and gpu-1\n")
    assert "What would help" not in shown


def test_a_pod():
    shown = text(explain_pod(situations.together(), "p"))
    assert shown.startswith("pod p cannot run: ")
    assert "\nclaim a of pod p can" in shown
    assert "\nclaim c of pod p cannot be had on n1" in shown


def test_an_error_ends_the_search():
    shown = text(explain(situations.partly_error(), KEY))
    assert "The scheduler reports this as an error of the pod, and tries no further node." in shown


def test_nothing_helps():
    reports = tuple(NodeReport((f"n{index}",), False, obstacle=f"reason {index}") for index in range(6))
    shown = text(Explanation("c", False, "claim c cannot be had", reports=reports, tried=3))
    assert "on n3:\n  reason 3\n" in shown
    assert "reason 4" not in shown
    assert "\nand 2 further nodes; -o yaml tells of all\n" in shown
    assert shown.endswith("No small change was found that helps; 3 changes were tried.\n")


def test_many_changes_are_cut_short():
    changes = tuple(Change("count", f"change {index}", "n", others=tuple("abcdef")) for index in range(9))
    shown = text(Explanation("c", False, "no", changes=changes, tried=9))
    assert "  6. change 5 (or a, b, c and 3 more)\n  and 3 more\n" in shown
