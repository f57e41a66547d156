from __future__ import annotations

from dra_sdk.tools.scheduling.picture.cards import cards
from dra_sdk.tools.scheduling.picture.drawing import Drawing
from dra_sdk.tools.scheduling.picture.scene import scene
from tests.tools.scheduling.picture.hostile import Page
from tests.tools.scheduling.worlds import GPU, device, gpus, nics, pod, pool_slice, world


def drawn(*objects: object, nodes: tuple[str, ...] = ()) -> Page:
    made = scene(world(*objects, nodes=nodes))  # type: ignore[arg-type]
    return Page(cards(made.cards, Drawing.of(made)))


def test_a_node():
    page = drawn(gpus("n1"), nics("n1"), pod("p", node="n1", namespace="ml"))
    assert page.text.startswith("Nodes n1 0 of 4 in use pods: ml/p NUMA node 0 pci0000:00 gpu.nvidia.com gpu-0 A100")
    assert [each["title"] for tag, each in page.tags if tag == "fieldset"][:2] == [
        "NUMA node 0 of n1",
        "pci0000:00 of n1",
    ]


def test_a_pool_that_is_not_named_after_its_node():
    other = pool_slice("rack", GPU, [device("a", nodeName="n1")], perDeviceNodeSelection=True)
    assert "gpu.nvidia.com pool rack a" in drawn(other).text


def test_devices_that_several_nodes_reach():
    page = drawn(pool_slice("rack", GPU, [device("a")], allNodes=True), nodes=("n1", "n2"))
    assert "For every node 0 of 1 in use" in page.text
    assert page.text.endswith("Without devices: n1, n2")
    assert len(page.having("network")) == 1
