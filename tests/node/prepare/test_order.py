"""What a newer call about the same claim has overtaken is refused, also between processes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dra_sdk.errors import RetriableError, StateError
from dra_sdk.node.prepare.order import Order


@pytest.fixture(params=["own", "shared"])
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Order, Order]:
    """The order as two callers see it: twice the same, or that of two processes."""
    if request.param == "own":
        return (Order(),) * 2
    return Order.shared(tmp_path, "boot-1"), Order.shared(tmp_path, "boot-1")


def test_a_prepare_from_before_an_unprepare_is_refused(orders: tuple[Order, Order]) -> None:
    here, there = orders
    here.check_prepare("u-1", 5)
    here.unprepare("u-1", 7)
    here.unprepare("u-1", 6)  # a later one may begin first
    with pytest.raises(RetriableError, match="was unprepared while this call was waiting"):
        there.check_prepare("u-1", 6)
    there.check_prepare("u-1", 8)
    there.check_prepare("u-2", 5)
    there.check_unprepare("u-1", 5)


def test_an_unprepare_from_before_a_prepare_is_refused(orders: tuple[Order, Order]) -> None:
    here, there = orders
    here.check_unprepare("u-1", 5)
    here.prepared("u-1", 7)
    with pytest.raises(RetriableError, match="was prepared again while this call was waiting"):
        there.check_unprepare("u-1", 6)
    there.check_unprepare("u-1", 8)
    there.check_unprepare("u-2", 5)
    there.check_prepare("u-1", 5)


def test_a_file_of_this_boot_is_kept_and_those_of_others_go(tmp_path: Path) -> None:
    Order.shared(tmp_path, "boot-1").unprepare("u-1", 7)
    with pytest.raises(RetriableError):
        Order.shared(tmp_path, "boot-1").check_prepare("u-1", 6)
    Order.shared(tmp_path, "boot-2").check_prepare("u-1", 6)
    (path,) = tmp_path.iterdir()
    assert path.name == "order-boot-2"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_blocks * 512 <= 8192, "what is not used takes no disk"


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=f"cannot use {tmp_path}/none/order-boot-1: No such file"):
        Order.shared(tmp_path / "none", "boot-1")


def test_a_disk_that_takes_nothing_stops_no_call(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    order = Order(tmp_path / "order")
    os.dup2(os.open(tmp_path / "order", os.O_RDONLY), order._handle)
    order.unprepare("u-1", 7)
    assert "the order of calls is not kept: Bad file descriptor" in caplog.text
    order.check_prepare("u-1", 6)


def test_an_order_that_nobody_needs_any_more_is_closed() -> None:
    order = Order()
    handle = order._handle
    del order
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)
