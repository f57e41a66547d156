"""What the machine's command line must say, since QEMU would start without it and misbehave."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.progress import Progress
from tests.lab.harness import node
from tests.lab.harness.hardware import Hardware, command, network
from tests.lab.harness.node import Node


def options(words, name):
    return [value for option, value in pairwise(words) if option == name]


def test_there_is_an_iommu_before_any_function():
    """QEMU gives the functions before it no IOMMU."""
    devices = options(Hardware().arguments(), "-device")
    assert devices[0] == "intel-iommu,intremap=on,device-iotlb=on"


def test_one_thread_runs_all_cpus():
    """With more, QEMU 10.0 loses the ends of interrupts: see the README."""
    assert options(Hardware().arguments(), "-accel") == ["tcg,thread=single"]


def test_the_root_is_read_only_and_nothing_but_the_api_server_is_reached():
    words = command(Hardware(), kernel="/boot/k", initrd="/i", results="/r", more=network("10.0.2.100", 6443, 31234))
    shares = options(words, "-fsdev")
    assert [("readonly=on" in share, "path=/r" in share) for share in shares] == [(True, False), (False, True)]
    (netdev,) = options(words, "-netdev")
    assert "restrict=on" in netdev.split(",")
    assert netdev.endswith("guestfwd=tcp:10.0.2.100:6443-cmd:/usr/bin/busybox nc 127.0.0.1 31234")


def test_only_the_virtual_machine_joins(tmp_path, monkeypatch):
    monkeypatch.setattr(node, "RESULTS", str(tmp_path))
    with pytest.raises(HarnessError, match="only the virtual machine"):
        Node.join(Progress())
