from __future__ import annotations

from dra_sdk.tools.scheduling.cluster.slice_changes import compare_slices
from tests.tools.scheduling.cluster.objects import DRIVER, cluster, gpus


def test_devices_that_are_new_gone_or_different():
    before, after = gpus("a", "gpu-0", "gpu-1"), gpus("a", "gpu-1", "gpu-2")
    after["spec"]["devices"][0]["attributes"] = {"model": {"string": "h100"}, "index": {"int": 1}}
    after["spec"]["devices"][0]["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    changes = [change.to_json() for change in compare_slices(cluster(before), cluster(after))]
    where = {"driver": DRIVER, "pool": "a"}
    fields = {
        "attributes[index]": {"before": None, "after": 1},
        "attributes[model]": {"before": "a100", "after": "h100"},
        "taints": {"before": None, "after": [{"key": "k", "effect": "NoSchedule"}]},
    }
    assert changes == [
        {**where, "device": "gpu-0", "change": "removed"},
        {**where, "device": "gpu-1", "change": "changed", "fields": fields},
        {**where, "device": "gpu-2", "change": "added"},
    ]


def test_equal_devices_do_not_differ():
    assert compare_slices(cluster(gpus("a", "gpu-0")), cluster(gpus("a", "gpu-0"))) == []
    newer = (gpus("a", "gpu-0"), gpus("a", "gpu-0", generation=2))
    assert compare_slices(cluster(gpus("a", "gpu-0")), cluster(*newer)) == []
