"""The paths and addresses of a cluster."""

from __future__ import annotations

import pytest

from tests.cluster.harness import HarnessError
from tests.cluster.harness.layout import Layout


@pytest.mark.parametrize("name", ["", "-a", "a-", "Upper", "a/b", "..", "x" * 17])
def test_a_cluster_name_that_is_not_a_short_label_is_refused(name):
    with pytest.raises(HarnessError, match="at most 16"):
        Layout.of(name)


def test_sockets_of_drivers_with_common_names_fit_into_107_bytes():
    longest = Layout.of("x" * 16).kubelet_dir / "plugins_registry" / f"{'driver' * 7}-reg.sock"
    assert len(str(longest)) <= 107


def test_clusters_have_addresses_of_their_own():
    layouts = [Layout.of(name) for name in ("default", "test", "second")]
    for attribute in (
        "pod_subnet",
        "pod_gateway",
        "service_subnet",
        "service_address",
        "node_address",
        "node_name",
        "root",
    ):
        assert len({getattr(layout, attribute) for layout in layouts}) == len(layouts)
    assert layouts[0].service_address == "198.19.0.1"


def test_tail_leaves_out_flags_and_says_that_a_log_is_absent(layout):
    assert layout.tail("etcd") == "(no log)"
    layout.log("etcd").write_text('I1 flags.go:64] FLAG: --a="b"\none\ntwo\nthree\n')
    assert layout.tail("etcd", 2) == "two\nthree"
    assert layout.tail("etcd") == "one\ntwo\nthree"
