from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk.node.slices.names import decode_index, encode_index, generate_name, index_length


@given(st.integers(1, 2**24).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, count - 1))))
def test_an_index_survives_its_name(pair: tuple[int, int]):
    count, index = pair
    length = index_length(count)
    assert decode_index(encode_index(index, length) + "-driver-x1y2z", length) == index


def test_names_are_ordered_as_their_indexes():
    names = [generate_name(index, 20, "d", "n") for index in range(20)]
    assert names == sorted(names)


def test_generate_name():
    assert generate_name(0, 1, "gpu.example.com", "node-1") == "00000-gpu.example.com-node-1-"
    assert generate_name(26, 2**20 + 1, "gpu.example.com", None) == "00001a-gpu.example.com-"
    assert generate_name(0, 1, "GPU.Example.com", "n") == "00000-gpu.example.com-n-"


@pytest.mark.parametrize(
    "name", ["", "00000", "0000-x", "000000-x", "0x000-x", "0000A-x", "+0000-x", "0_000-x", " 0000-x"]
)
def test_what_is_no_index(name: str):
    with pytest.raises(ValueError, match="does not begin with"):
        decode_index(name, 5)
