"""The fake machines have the files of a real kernel. The tests of the readers check that they can be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.testing.sysfs import FakePci, hybrid_machine, regular_machine

CPU = Path("sys/devices/system/cpu")


def text(root: Path, path: str | Path) -> str:
    return (root / path).read_text(encoding="utf-8")


def test_far_numbering_has_the_second_threads_last(tmp_path):
    regular_machine(sockets=2, cores=2).write(tmp_path)
    assert text(tmp_path, CPU / "cpu1/topology/core_cpus_list") == "1,5\n"
    assert text(tmp_path, CPU / "cpu6/topology/physical_package_id") == "1\n"
    assert text(tmp_path, CPU / "cpu6/topology/core_id") == "0\n"


def test_near_numbering_has_the_threads_of_a_core_together(tmp_path):
    regular_machine(sockets=2, cores=2, numbering="near", unique_core_ids=True).write(tmp_path)
    assert text(tmp_path, CPU / "cpu5/topology/core_cpus_list") == "4-5\n"
    assert text(tmp_path, CPU / "cpu5/topology/core_id") == "2\n"
    assert text(tmp_path, CPU / "cpu5/topology/die_cpus_list") == "4-7\n"


def test_the_cores_must_be_a_multiple_of_the_caches():
    with pytest.raises(ValueError, match="5 cores cannot be distributed evenly over 2 L3 caches"):
        regular_machine(cores=5, l3_caches=2)


def test_an_offline_cpu_has_only_its_directory(tmp_path):
    regular_machine(cores=2).offlined(3).write(tmp_path)
    assert [text(tmp_path, CPU / name) for name in ("present", "online", "offline")] == ["0-3\n", "0-2\n", "3\n"]
    assert [path.name for path in (tmp_path / CPU / "cpu3").iterdir()] == ["uevent"]
    assert text(tmp_path, CPU / "cpu1/topology/thread_siblings_list") == "1\n"
    assert text(tmp_path, CPU / "cpu0/cache/index3/shared_cpu_list") == "0-2\n"


def test_a_hybrid_machine_has_a_pmu_for_each_kind_of_core(tmp_path):
    hybrid_machine(p_cores=2, e_cores=4).write(tmp_path)
    assert text(tmp_path, "sys/devices/cpu_core/cpus") == "0-3\n"
    assert text(tmp_path, "sys/devices/cpu_atom/cpus") == "4-7\n"


def test_a_cpu_links_to_its_numa_node(tmp_path):
    regular_machine(sockets=2, cores=1, threads=1).write(tmp_path)
    assert (tmp_path / CPU / "cpu1/node1/cpulist").read_text() == "1\n"
    assert text(tmp_path, "sys/devices/system/node/node0/distance") == "10 21\n"


def test_a_kernel_without_numa_has_no_node_directory(tmp_path):
    replace(regular_machine(), numa=False).write(tmp_path)
    assert not (tmp_path / "sys/devices/system/node").exists()
    assert list((tmp_path / CPU / "cpu0").glob("node*")) == []


def test_links_stay_inside_the_root(tmp_path):
    physical = FakePci(address="0000:5e:00.0", total_vfs=2, driver="ice", iommu_group=3)
    virtual = FakePci(address="0000:5e:01.0", physical_function=physical.address)
    replace(regular_machine(), pci=(physical, virtual)).write(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    device = tmp_path / "b/sys/bus/pci/devices/0000:5e:00.0"
    assert (device / "virtfn0/physfn/sriov_numvfs").read_text() == "1\n"
    assert (device / "class").read_text() == "0x020000\n"
    assert str((device / "driver").readlink()) == "../../../bus/pci/drivers/ice"


def test_the_same_machine_writes_the_same_files(tmp_path):
    for name in ("one", "two"):
        hybrid_machine().write(tmp_path / name)
    first, second = (
        {
            path.relative_to(tmp_path / name): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }
        for name in ("one", "two")
    )
    assert first == second
    assert len(first) > 100


def test_a_second_machine_on_a_node_is_a_sentence(tmp_path):
    regular_machine().write(tmp_path)
    with pytest.raises(SettingsError, match="has a machine already: describe it whole at once, or make another node"):
        regular_machine(sockets=2).write(tmp_path)
