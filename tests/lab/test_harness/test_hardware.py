"""The machine, as QEMU's command line."""

from __future__ import annotations

from itertools import pairwise

from tests.lab.harness.hardware import Hardware, command, disk, network


def options(words, name):
    return [value for option, value in pairwise(words) if option == name]


def test_sockets_cores_threads_and_nodes():
    words = Hardware(sockets=2, cores=2, threads=2, memory=512).arguments()
    assert options(words, "-smp") == ["8,sockets=2,cores=2,threads=2"]
    assert options(words, "-m") == ["1024"]
    assert [node.rpartition("cpus=")[2] for node in options(words, "-numa")] == ["0-3", "4-7"]
    roots = [device for device in options(words, "-device") if device.startswith("pxb-pcie")]
    assert [root.rpartition(",")[2] for root in roots] == ["numa_node=0", "numa_node=1"]


def test_there_is_an_iommu_before_any_function():
    """QEMU gives the functions before it no IOMMU."""
    devices = options(Hardware().arguments(), "-device")
    assert devices[0] == "intel-iommu,intremap=on,device-iotlb=on"


def test_every_function_has_its_own_address():
    devices = options(Hardware().arguments(), "-device")
    addresses = [word for device in devices for word in device.split(",") if word.startswith("mac=")]
    assert len(addresses) == len(set(addresses)) == 6


def test_the_root_is_read_only_and_nothing_is_connected():
    words = command(Hardware(), kernel="/boot/k", initrd="/i", results="/r")
    shares = options(words, "-fsdev")
    assert [("readonly=on" in share, "path=/r" in share) for share in shares] == [(True, False), (False, True)]
    assert options(words, "-kernel") == ["/boot/k"]
    assert not options(words, "-netdev")
    assert "-nodefaults" in words


def test_a_machine_that_joins_a_cluster_reaches_only_the_api_server():
    more = [*network("10.0.2.100", 6443, 31234), *disk("/r/disk")]
    words = command(Hardware(), kernel="/boot/k", initrd="/i", results="/r", more=more)
    (found,) = options(words, "-netdev")
    assert "restrict=on" in found.split(",")
    assert found.endswith("guestfwd=tcp:10.0.2.100:6443-cmd:/usr/bin/busybox nc 127.0.0.1 31234")
    assert "virtio-net-pci,bus=pcie.0,netdev=network" in options(words, "-device")
    assert options(words, "-drive") == ["file=/r/disk,format=raw,if=none,id=disk,cache=unsafe"]


def test_a_clock_can_count_instructions():
    assert options(Hardware(counts=True).arguments(), "-icount") == ["shift=0"]
    assert options(Hardware().arguments(), "-icount") == []


def test_one_thread_runs_all_cpus():
    """With more, QEMU 10.0 loses the ends of interrupts: see the README."""
    assert options(Hardware().arguments(), "-accel") == ["tcg,thread=single"]
