"""How a cluster runs kubectl, for which a shell script stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.harness import HarnessError
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.progress import Progress
from tests.cluster.test_harness.states import make_state

ONCE_BUSY = """
if ! [ -e {folder}/asked ]; then
  touch {folder}/asked
  echo 'Unable to connect to the server: net/http: TLS handshake timeout' >&2
  exit 1
fi
cat
"""


@pytest.fixture
def cluster(layout, tmp_path) -> Cluster:
    return Cluster(layout, make_state(cache=str(tmp_path)), Progress())


def write_kubectl(folder: Path, script: str) -> None:
    program = folder / "kube/1.36.3/kubectl"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)


def test_a_server_that_was_too_busy_for_a_connection_is_asked_again(cluster, tmp_path):
    write_kubectl(tmp_path, ONCE_BUSY.format(folder=tmp_path))
    assert cluster.kubectl("apply", "-f", "-", input="made") == "made"


def test_an_error_of_kubectl_is_raised_at_once(cluster, tmp_path):
    write_kubectl(tmp_path, f"echo x >> {tmp_path}/asked; echo 'no such pod' >&2; exit 1")
    with pytest.raises(HarnessError, match="kubectl get pod lit failed: no such pod"):
        cluster.kubectl("get", "pod", "lit")
    assert cluster.kubectl("get", "pod", "lit", check=False) == "no such pod\n"
    assert (tmp_path / "asked").read_text() == "x\nx\n"


def test_objects_are_applied_in_one_run_and_in_their_order(cluster, tmp_path):
    write_kubectl(tmp_path, f"cat >> {tmp_path}/applied")
    cluster.apply({"kind": "Pod"}, "kind: Node")
    assert (tmp_path / "applied").read_text() == '---\n{"kind": "Pod"}\n---\nkind: Node\n'
