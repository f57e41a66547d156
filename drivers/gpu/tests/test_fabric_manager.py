"""The binary interface of the Fabric Manager's library: a stub of it, compiled from C, that checks what it is given."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from dra_driver_gpu.fabric_manager import SONAME, FabricError, Partition, RealFabricManager

from dra_sdk import HardwareError

STUB = """
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned version; char address[256]; unsigned timeout_ms, is_unix_socket; } connect_params;
typedef struct { unsigned id; char uuid[80], bus[32]; unsigned available, most, rate; } gpu_info;
typedef struct { unsigned id, active, count; gpu_info gpus[16]; } partition_info;
typedef struct { unsigned version, count, most; partition_info partitions[64]; } partition_list;
static int opened, active[4];
int fmLibInit(void) { return opened++ ? -7 : 0; }
int fmLibShutdown(void) { opened--; return 0; }
int fmConnect(connect_params *p, void **handle) {
    if (p->version != (sizeof *p | 1 << 24)) return -6;
    if (!p->is_unix_socket || strcmp(p->address, "/run/fm/socket") || !p->timeout_ms) return -1;
    *handle = &opened;
    return 0;
}
int fmDisconnect(void *handle) { return handle == &opened ? 0 : -9; }
int fmGetSupportedFabricPartitions(void *handle, partition_list *list) {
    if (handle != &opened) return -9;
    if (list->version != (sizeof *list | 1 << 24)) return -6;
    list->count = 2;
    for (unsigned i = 0; i < 2; i++) {
        partition_info *p = &list->partitions[i];
        p->id = i + 2, p->active = active[i + 2], p->count = i + 1;
        for (unsigned k = 0; k <= i; k++) p->gpus[k].id = 5 + k;
    }
    return 0;
}
int fmActivateFabricPartition(void *handle, unsigned id) {
    if (handle != &opened) return -9;
    if (active[id]) return -7;
    active[id] = 1;
    return 0;
}
int fmDeactivateFabricPartition(void *handle, unsigned id) { active[id] = 0; return handle == &opened ? 0 : -9; }
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A driver root with the library."""
    directory = tmp_path / "usr/lib64"
    directory.mkdir(parents=True)
    source = tmp_path / "stub.c"
    source.write_text(STUB)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", directory / SONAME, source], check=True)
    return tmp_path


def test_partitions_are_listed_activated_and_deactivated(root: Path) -> None:
    manager = RealFabricManager(root, Path("/run/fm/socket"))
    small, large = Partition(2, False, frozenset({5})), Partition(3, False, frozenset({5, 6}))
    assert manager.partitions() == [small, large]
    manager.activate(3)
    assert [partition.active for partition in manager.partitions()] == [False, True]
    with pytest.raises(FabricError, match=r"fmActivateFabricPartition: in use, or active already \(return value -7\)"):
        manager.activate(3)
    manager.deactivate(3)
    assert not any(partition.active for partition in manager.partitions())


def test_a_connection_that_fails_leaves_nothing_open(root: Path) -> None:
    with pytest.raises(FabricError, match=r"fmConnect to /elsewhere: invalid argument \(return value -1\)"):
        RealFabricManager(root, Path("/elsewhere")).partitions()
    assert RealFabricManager(root, Path("/run/fm/socket")).partitions()


def test_calls_of_several_threads_do_not_meet_in_the_library(root: Path) -> None:
    """It can be initialized only once at a time."""
    managers = [RealFabricManager(root, Path("/run/fm/socket")) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda number: len(managers[number % 4].partitions()), range(200)))
    assert counts == [2] * 200


def test_without_the_library(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match=r"no libnvfm\.so\.1 under driver root"):
        RealFabricManager(tmp_path, Path("/run/fm/socket")).partitions()
