"""The addresses of this machine."""

from __future__ import annotations

from tests.cluster.harness import network


def test_interfaces_are_found_by_their_address():
    listing = [
        {"ifname": "lo", "addr_info": [{"local": "127.0.0.1"}]},
        {"ifname": "veth1", "addr_info": [{"local": "10.0.0.1"}]},
    ]
    assert network.interfaces_with("10.0.0.1", listing) == ["veth1"]
    assert network.interfaces_with("10.0.0.2", listing) == []
