from __future__ import annotations

from dra_sdk.tools.conformance.evidence import Exchange, Recorder


def test_the_latest_exchanges_are_kept_until_taken() -> None:
    recorder = Recorder(kept=2)
    for number in range(3):
        recorder.add(Exchange("GetInfo", number, "answer", 0.12345))
    assert [each.request for each in recorder.take()] == [1, 2]
    assert recorder.take() == []


def test_an_exchange_for_a_report() -> None:
    assert Exchange("GetInfo", {}, "OK", 0.123456).encoded() == {"request": {}, "answer": "OK", "seconds": 0.1235}
