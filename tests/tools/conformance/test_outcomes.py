from __future__ import annotations

import pytest

from dra_sdk.tools.conformance.outcomes import CheckFailedError, Recorder, expect
from dra_sdk.tools.simulator.kubelet.calls import Exchange


def test_expect_raises_with_evidence() -> None:
    expect(1, "no problem")
    with pytest.raises(CheckFailedError, match="too blue") as caught:
        expect([], "too blue", colour="blue")
    assert caught.value.evidence == {"colour": "blue"}


def test_the_latest_exchanges_are_kept_until_they_are_taken() -> None:
    recorder = Recorder(size=2)
    for number in range(3):
        recorder.add(Exchange("GetInfo", number, "answer", 0.12345))
    assert [exchange.request for exchange in recorder.take()] == [1, 2]
    assert recorder.take() == []


def test_an_exchange_as_json() -> None:
    assert Exchange("GetInfo", {}, "OK", 0.123456).encoded() == {"request": {}, "answer": "OK", "seconds": 0.1235}
