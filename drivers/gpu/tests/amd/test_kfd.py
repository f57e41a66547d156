"""The topology of KFD."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dra_driver_amd.kfd import read_kfd_nodes
from dra_driver_amd.testing import RX7900XTX, mi300x, write_gpus

from dra_sdk.hardware import Host, collecting_omissions

NODES = "sys/class/kfd/kfd/topology/nodes"


def test_the_nodes_of_a_partitioned_gpu_have_one_address(tmp_path: Path) -> None:
    nodes = read_kfd_nodes(write_gpus(tmp_path, [mi300x("cpx"), RX7900XTX]))
    assert [node.address for node in nodes] == ["0000:c1:00.0"] * 8 + ["0000:c2:00.0"]
    assert [node.render for node in nodes] == list(range(128, 137))
    assert [node.compute_units for node in nodes] == [38] * 8 + [96]


def test_a_node_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    host = write_gpus(tmp_path, [RX7900XTX, RX7900XTX])
    (tmp_path / NODES / "1/properties").unlink()
    (tmp_path / NODES / "2/mem_banks/0/properties").unlink()
    assert [(node.render, node.memory_bytes) for node in read_kfd_nodes(host)] == [(129, 0)]


def test_system_memory_is_not_the_gpus(tmp_path: Path) -> None:
    host = write_gpus(tmp_path, [RX7900XTX])
    (tmp_path / NODES / "1/mem_banks/0/properties").write_text("heap_type 0\nsize_in_bytes 4096\n")
    assert read_kfd_nodes(host)[0].memory_bytes == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("simd_count many\n", "must be a name and a number, is 'simd_count many'"),
        ("simd_count 4\ndrm_render_minor 128\n", "the GPU has no location_id"),
        ("", "is empty"),
    ],
)
def test_a_malformed_file_costs_its_own_node(tmp_path: Path, text: str, message: str) -> None:
    host = write_gpus(tmp_path, [RX7900XTX, RX7900XTX])
    (tmp_path / NODES / "1/properties").write_text(text)
    with collecting_omissions() as omissions:
        assert [node.number for node in read_kfd_nodes(host)] == [2]
    [omission] = omissions
    assert (omission.subject, omission.is_device) == ("KFD node 1", True)
    assert message in omission.reason


def test_without_kfd_there_are_no_nodes(tmp_path: Path) -> None:
    assert read_kfd_nodes(Host(tmp_path)) == ()


@pytest.mark.parametrize(
    ("version", "target", "family"),
    [
        (70000, "gfx700", "KV"),
        (70001, "gfx701", "CI"),
        (80001, "gfx801", "CZ"),
        (80003, "gfx803", "VI"),
        (90002, "gfx902", "RV"),
        (90008, "gfx908", "AI"),
        (90010, "gfx90a", "AI"),
        (90012, "gfx90c", "RV"),
        (90402, "gfx942", "AI"),
        (90500, "gfx950", "AI"),
        (100300, "gfx1030", "NV"),
        (100303, "gfx1033", "VGH"),
        (100305, "gfx1035", "YC"),
        (100306, "gfx1036", "GC_10_3_6"),
        (110001, "gfx1101", "GC_11_0_0"),
        (110003, "gfx1103", "GC_11_0_1"),
        (110501, "gfx1151", "GC_11_5_0"),
        (120001, "gfx1201", "GC_12_0_0"),
        (130000, "gfx1300", ""),
        (0, "", ""),
    ],
)
def test_the_family_follows_from_the_instruction_set(tmp_path: Path, version: int, target: str, family: str) -> None:
    (node,) = read_kfd_nodes(write_gpus(tmp_path, [replace(RX7900XTX, gfx=version)]))
    assert (node.gfx_target, node.family) == (target, family)
