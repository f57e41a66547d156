"""A failure at every write to the kernel, before and after its effect, in prepare and unprepare.

After a failed prepare the node is as before. After a failed unprepare the next one succeeds. A GPU that is back from a
virtual machine is free, also if the kernel refuses its partition mode: a claim cannot wait for that.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from dra_driver_amd.testing import mi300x

from dra_sdk import RetriableError
from dra_sdk.testing import claim, request
from dra_sdk.testing.crashes import tree

pytest_plugins = ["dra_sdk.testing.plugin"]
MODE = "/sys/bus/pci/devices/0000:c1:00.0/current_compute_partition"
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
def test_a_write_that_fails_leaves_the_node_as_it_was(
    make_node: Any, scenario: str, after: bool, caplog: pytest.LogCaptureFixture
) -> None:
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
    harmless = 0
    for nth in range(1, undone + 1):
        made.driver.cluster.adopt(allocated)
        prepared = made.driver.prepare(allocated)
        made.effects.fail_call(nth, after=after)
        caplog.clear()
        with suppress(RetriableError):
            made.driver.unprepare(prepared)
        made.effects.clear()
        if made.driver.held:
            made.driver.unprepare(prepared)
        else:
            assert "no harm to the next claim: compute partition mode of GPU 0000:c1:00.0" in caplog.text
            harmless += 1
            made.effects.write(made.node.path(MODE), "CPX")  # as the warning wants it
        assert tree(made.node.root) == before
        made.driver.assert_clean()
    assert harmless == (1 if scenario == "passed through" else 0)
