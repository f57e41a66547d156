"""A failure at every write to the kernel, before and after its effect, in prepare and unprepare.

After a failed prepare the node is as before. After a failed unprepare the next one succeeds.
"""

from __future__ import annotations

from typing import Any

import pytest
from dra_driver_amd.testing import mi300x

from dra_sdk import RetriableError
from dra_sdk.testing import claim, request
from dra_sdk.testing.crashes import tree

pytest_plugins = ["dra_sdk.testing.plugin"]
DIVIDED = {"apiVersion": "gpu.resource.amd.com/v1alpha1", "kind": "GpuConfig", "computePartition": "CPX"}
SCENARIOS = {
    "divided": (mi300x(), lambda: claim("gpu", config=DIVIDED), {"partitioning": True}, 1),
    "passed through": (
        mi300x("cpx"),
        lambda: claim(request("vm", where='device.attributes["gpu.amd.com"].type == "vfio"')),
        {"passthrough": True},
        3,
    ),
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("scenario", list(SCENARIOS))
def test_a_write_that_fails_leaves_the_node_as_it_was(make_node: Any, scenario: str, after: bool) -> None:
    gpu, make_claim, settings, writes = SCENARIOS[scenario]
    made = make_node(gpu, **settings)
    before = tree(made.node.root)
    allocated = made.driver.allocate(make_claim())
    for nth in range(1, writes + 1):
        made.effects.fail_call(nth, after=after)
        with pytest.raises(RetriableError, match="injected"):
            made.driver.prepare(allocated)
        assert tree(made.node.root) == before
    made.effects.clear()
    prepared = made.driver.prepare(allocated)
    undone = len(made.effects.calls)
    made.driver.unprepare(prepared)
    undone = len(made.effects.calls) - undone
    assert undone >= writes
    for nth in range(1, undone + 1):
        made.driver.cluster.adopt(allocated)
        prepared = made.driver.prepare(allocated)
        made.effects.fail_call(nth, after=after)
        with pytest.raises(RetriableError, match="injected"):
            made.driver.unprepare(prepared)
        made.effects.clear()
        made.driver.unprepare(prepared)
        assert tree(made.node.root) == before
        made.driver.assert_clean()
