"""Who has which CPU, as a picture for a terminal: a line for each L3 cache, a letter for each claim.

    SOCKET  NUMA  L3  CPUS       CORES
    0       0     0   0-3,8-11   -- AA AA B.
    0       0     4   4-7,12-15  .. .. .. ..

    A  default/web  1-2,9-10
    B  default/db   3
    .  shared by all other containers: 4-7,11-15
    -  reserved: 0,8

Each group of characters is a core, each character one of its threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from string import ascii_letters
from typing import Final

from dra_sdk.hardware import Cpu, CpuSet, CpuTopology, format_cpuset

SHARED: Final = "."
RESERVED: Final = "-"
MORE: Final = "+"
TWICE: Final = "!"
_HEADINGS: Final = ("SOCKET", "NUMA", "L3", "CPUS", "CORES")
_LETTERS: Final = ascii_letters[26:] + ascii_letters[:26]


def draw(topology: CpuTopology, claims: Mapping[str, CpuSet], reserved: CpuSet = frozenset()) -> Iterator[str]:
    """Yield the lines of the picture.

    claims: the CPUs of each claim, by the claim's name. The first 52 have letters of their own, all others `+`.
    reserved: the CPUs that no claim gets.
    """
    letters = dict(zip(claims, _LETTERS, strict=False))
    owners: dict[int, list[str]] = {}
    for name, cpus in claims.items():
        for cpu in cpus:
            owners.setdefault(cpu, []).append(name)

    def symbol(cpu: int) -> str:
        names = owners.get(cpu, ())
        if not names:
            return RESERVED if cpu in reserved else SHARED
        return TWICE if len(names) > 1 else letters.get(names[0], MORE)

    yield from _table([_HEADINGS, *_rows(topology, symbol)])
    yield ""
    yield from _legend(topology, claims, letters, reserved)
    if twice := frozenset(cpu for cpu, names in owners.items() if len(names) > 1):
        yield f"{TWICE}  claimed more than once: {format_cpuset(twice)}"


def _rows(topology: CpuTopology, symbol: Callable[[int], str]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each L3 cache; for each NUMA node where CPUs have no such cache."""
    places: dict[tuple[int, int, int | None], list[Cpu]] = {}
    for cpu in topology.cpus:
        places.setdefault((cpu.socket, cpu.numa_node, cpu.l3), []).append(cpu)
    for (socket, node, l3), cpus in sorted(places.items(), key=lambda place: min(cpu.id for cpu in place[1])):
        cores: dict[int, str] = {}
        for cpu in cpus:
            cores[cpu.core] = cores.get(cpu.core, "") + symbol(cpu.id)
        here = format_cpuset(frozenset(cpu.id for cpu in cpus))
        yield str(socket), str(node), "-" if l3 is None else str(l3), here, " ".join(cores.values())


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _legend(
    topology: CpuTopology, claims: Mapping[str, CpuSet], letters: Mapping[str, str], reserved: CpuSet
) -> Iterator[str]:
    online = topology.online
    width = max(map(len, claims), default=0)
    for name, cpus in claims.items():
        away = f" (offline: {format_cpuset(cpus - online)})" if cpus - online else ""
        yield f"{letters.get(name, MORE)}  {name.ljust(width)}  {format_cpuset(cpus)}{away}"
    shared = online - reserved - frozenset().union(*claims.values())
    yield f"{SHARED}  shared by all other containers: {format_cpuset(shared) or 'none'}"
    if reserved:
        yield f"{RESERVED}  reserved: {format_cpuset(reserved)}"
    if topology.offline:
        yield f"   offline: {format_cpuset(topology.offline)}"
