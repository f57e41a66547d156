from __future__ import annotations

from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming


def test_deadlines_are_the_kubelets_own_unless_a_test_says_otherwise() -> None:
    timing = KubeletTiming()
    assert (timing.dial, timing.get_info, timing.notify, timing.call) == (10, 1, 5, 45)
    assert (timing.wipe_delay, timing.health_timeout, timing.reconcile) == (30, 30, 60)
