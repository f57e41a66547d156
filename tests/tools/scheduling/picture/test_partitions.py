from __future__ import annotations

from dra_sdk.model.quantity import Quantity
from dra_sdk.tools.scheduling.allocator import Inventory
from dra_sdk.tools.scheduling.picture.partitions import Bar, Board, board, kind
from dra_sdk.tools.scheduling.picture.pools import pools
from tests.tools.scheduling.worlds import GPU, claim, device, exactly, given, mig, pool_slice


def made(*used: str) -> Board:
    claims = [given(claim(each, exactly("m", GPU)), ("m", GPU, "n1", f"gpu-0-mig-{each}")) for each in used]
    found = pools(Inventory(mig("n1")), claims)
    return board(found.sets[0], found.tiles)


def test_numbered_places_are_a_strip():
    found = made("1g-5gb-1", "3g-20gb-4")
    (strip,) = found.strips
    assert strip.name == "memory-slice-0…7"
    assert [each and each[1] for each in strip.cells] == [None, "1g-5gb-1", None, None, *["3g-20gb-4"] * 4]
    assert [each.name for each in found.bars] == ["memory", "multiprocessors", "copy-engines"]


def test_bars():
    memory = made("1g-5gb-1", "3g-20gb-4").bars[0]
    assert str(memory.left) == "15Gi"
    assert [round(memory.share(amount)) for _, amount in memory.parts] == [12, 50]
    assert Bar("x", Quantity(0), ()).share(Quantity(1)) == 0.0


def test_what_there_is_room_for():
    assert dict(made().possible) == {"1g.5gb": 7, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1}
    assert dict(made("4g-20gb-0").possible) == {"1g.5gb": 3, "2g.10gb": 1}
    assert made("7g-40gb-0").possible == ()


def test_kinds():
    def of(name: str, **attributes: object) -> str:
        return kind(pools(Inventory([pool_slice("n", GPU, [device(name, attributes)])]), []).tiles[0])

    assert of("a-0", profile="1g.5gb", type="mig") == "1g.5gb"
    assert of("a-0", **{"x.example.com/type": "small"}) == "small"
    assert of("part-12") == "part"
