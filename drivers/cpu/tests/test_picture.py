"""The picture of `dra-sdk cpu top`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from dra_driver_cpu.picture import draw

from dra_sdk.hardware import parse_cpuset, read_cpus
from dra_sdk.testing.sysfs import FakeMachine, hybrid_machine, regular_machine


@pytest.fixture
def picture(tmp_path: Path):
    def drawn(machine: FakeMachine, claims: Mapping[str, str], reserved: str = "") -> list[str]:
        sets = {name: parse_cpuset(cpus) for name, cpus in claims.items()}
        return list(draw(read_cpus(machine.write(tmp_path)), sets, parse_cpuset(reserved)))

    return drawn


def test_each_cache_is_a_line_and_each_claim_a_letter(picture):
    machine = regular_machine(sockets=2, cores=4)
    assert picture(machine, {"default/web": "1-2,9-10", "default/db": "3,4"}, reserved="0,8") == [
        "SOCKET  NUMA  L3  CPUS       CORES",
        "0       0     0   0-3,8-11   -- AA AA B.",
        "1       1     1   4-7,12-15  B. .. .. ..",
        "",
        "A  default/web  1-2,9-10",
        "B  default/db   3-4",
        ".  shared by all other containers: 5-7,11-15",
        "-  reserved: 0,8",
    ]


def test_cores_have_as_many_characters_as_threads(picture):
    lines = picture(hybrid_machine(), {})
    assert lines[1].endswith(".. " * 8 + ". . . . . . . .")


def test_cpus_without_an_l3_cache(picture):
    assert picture(regular_machine(cores=2, l3_caches=0), {})[1] == "0       0     -   0-3   .. .."


def test_offline_cpus_are_named_also_those_of_a_claim(picture):
    lines = picture(regular_machine(cores=2).offlined(3), {"default/web": "1,3"})
    assert lines[1] == "0       0     0   0-2   .. A"
    assert lines[3:] == [
        "A  default/web  1,3 (offline: 3)",
        ".  shared by all other containers: 0,2",
        "   offline: 3",
    ]


def test_nothing_is_shared(picture):
    assert ".  shared by all other containers: none" in picture(regular_machine(cores=1), {"a/b": "0-1"})


def test_a_cpu_of_two_claims_is_told(picture):
    lines = picture(regular_machine(cores=1), {"a/b": "0-1", "a/c": "1"})
    assert lines[1].endswith("A!")
    assert lines[-1] == "!  claimed more than once: 1"


def test_claims_beyond_the_alphabet_have_a_plus(picture):
    claims = {f"a/{number}": str(number) for number in range(54)}
    lines = picture(regular_machine(cores=27), claims)
    assert lines[1].count("+") == 2
    assert "+  a/53  53" in lines
