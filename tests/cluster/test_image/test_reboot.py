"""The node of the drivers' pods loses its power and boots again."""

from __future__ import annotations

from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.layout import OWN_CDI_DIRS
from tests.cluster.pods import allocated, nudge, read_pod
from tests.cluster.test_image import power
from tests.cluster.test_image.release import NAMESPACE, Release
from tests.cluster.test_image.seen import both, specs, states, user, variables


def test_claims_are_prepared_again_after_a_reboot_of_the_node(cluster: Cluster, release: Release) -> None:
    """All processes of the node end, what is in memory is lost, and the boot has another id, as after a power cut."""
    with power.Node(cluster) as node:
        for key in OWN_CDI_DIRS:
            node.show_boot_id(NAMESPACE, f"dra-{key}")
        release.wait_rolled_out()
        cluster.apply(both(), user(policy="Always"))
        cluster.wait_pod("user")
        given, held = allocated(cluster, _claim(cluster)), states(cluster)
        old = set(specs(cluster))
        assert len(held) == len(old) == 2
        node.reboot()
        assert not [path for path in old if path.exists()]
        cluster.wait_until(lambda: _restarted(cluster), "the pod runs again")
        assert allocated(cluster, _claim(cluster)) == given
        assert set(specs(cluster)) == old
        assert len(states(cluster)) == 2
        assert not set(states(cluster).values()) & set(held.values())  # prepared again, in this boot
        assert [each for each in variables(cluster, "user") if each.startswith("DRA_CPUSET_")]
        cluster.kubectl("delete", "pod", "user", "--wait=true")
        assert (specs(cluster), states(cluster)) == ([], {})
        release.remove()  # its pods see the root that ends here


def _claim(cluster: Cluster) -> str:
    return str(read_pod(cluster, "user")["status"]["resourceClaimStatuses"][0]["resourceClaimName"])


def _restarted(cluster: Cluster) -> bool:
    nudge(cluster, "user")  # the driver may not be there yet when the kubelet asks for the first time
    (status,) = read_pod(cluster, "user")["status"]["containerStatuses"]
    return bool(status["restartCount"] and status["ready"])
