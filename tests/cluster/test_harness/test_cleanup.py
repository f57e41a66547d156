"""Several clusters, and several commands on one cluster."""

from __future__ import annotations

import pytest

from tests.cluster.harness import HarnessError, cleanup
from tests.cluster.harness.layout import Layout
from tests.cluster.test_harness.states import make_state


def test_a_second_command_on_a_cluster_is_refused_and_the_lock_is_removed_with_the_cluster(tmp_path):
    layout = Layout.of("unit", tmp_path / "run")
    with cleanup.lock(layout), pytest.raises(HarnessError, match="another command"), cleanup.lock(layout):
        pass
    assert list(tmp_path.iterdir()) == []
    with cleanup.lock(layout):
        layout.root.mkdir()
    assert (tmp_path / "run" / ".unit.lock").exists()
    assert cleanup.other_clusters(layout) == []


def test_original_sysctls_are_those_before_the_first_cluster(tmp_path):
    first, second = Layout.of("first", tmp_path), Layout.of("second", tmp_path)
    first.root.mkdir()
    make_state(sysctls={"kernel/panic": "77"}).save(first.state_file)
    assert cleanup.original_sysctls(second) == {"kernel/panic": "77"}
    assert cleanup.other_clusters(second) == [first.root]
