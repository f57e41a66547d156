"""`dra-sdk state` while a driver runs: it notices at its next call, and needs no restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dra_sdk.tools.simulator import ClaimRef
from dra_sdk.tools.simulator.kubelet.records import ResponseError
from tests.cli.commands import Result, runner
from tests.faults.site import Inside
from tests.lamps import NAME

COMMAND = f"`dra-sdk state {NAME}` shows, repairs or forgets it"
POD: dict[str, dict[str, Any]] = {"alone": {}, "in a rolling update": {"pod_uid": "0a1b2c3d"}}


class Operator:
    """Types the command on the driver's node."""

    def __init__(self, site: Inside, capsys: pytest.CaptureFixture[str]) -> None:
        self.site, self.run = site, runner(capsys)
        self.flags = ["--kubelet-dir", site.cluster.registry_dir.parent, "--cdi-dir", site.cluster.cdi_dir]

    def state(self, *words: str) -> Result:
        return self.run("state", NAME, *words, *self.flags)

    @contextmanager
    def damage(self, keep: int, settings: dict[str, Any]) -> Iterator[tuple[ClaimRef, ClaimRef]]:
        """A driver that was started with the damaged file of a claim, and a claim that wants its lamp."""
        held, wanting = self.site.claim("lamp-0"), self.site.claim("lamp-0")
        with self.site.running(**settings):
            self.site.wait_registered()
            self.site.prepare(held)
        path = self.site.states / f"{held.uid}.json"
        path.write_bytes(path.read_bytes()[:keep])
        with self.site.running(**settings):
            self.site.cluster.kubelet.restart()
            self.site.wait_registered()
            with pytest.raises(ResponseError, match=COMMAND):
                self.site.prepare(wanting)
            for call in (self.site.prepare, self.site.unprepare):
                with pytest.raises(ResponseError, match=COMMAND):
                    call(held)
            assert self.state().status == 1
            yield held, wanting
            assert self.state().status == 0
            self.site.unprepare(wanting)
            for kept in self.site.states.glob(".*"):
                kept.unlink()
            self.site.assert_sound()


@pytest.fixture
def operator(fresh: Inside, capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(fresh, capsys)


@pytest.mark.parametrize("settings", POD.values(), ids=list(POD))
def test_a_repaired_claim_goes_on_and_gives_its_lamp_back(
    operator: Operator, fresh: Inside, settings: dict[str, Any]
) -> None:
    with operator.damage(-40, settings) as (held, wanting):
        done = operator.state("repair", held.uid)
        assert (done.status, done.err) == (0, "")
        with pytest.raises(ResponseError, match=r"device .*/lamp-0 is held by claim [^:]*$"):
            fresh.prepare(wanting)
        fresh.prepare(held)
        assert fresh.shining() == {"lamp-0": held.uid}
        assert [each.complete for each in fresh.driver.undone] == [False]
        fresh.unprepare(held)
        fresh.prepare(wanting)
        assert fresh.shining() == {"lamp-0": wanting.uid}


@pytest.mark.parametrize("keep", [-40, 0], ids=["that tells its devices", "that tells nothing"])
@pytest.mark.parametrize("settings", POD.values(), ids=list(POD))
def test_a_forgotten_claim_has_its_lamp_no_more(
    operator: Operator, fresh: Inside, settings: dict[str, Any], keep: int
) -> None:
    with operator.damage(keep, settings) as (held, wanting):
        done = operator.state("forget", held.uid, "--yes")
        assert (done.status, done.err) == (0, "")
        assert "dra_unprepare is not called" in done.out
        assert list(fresh.cluster.cdi_dir.iterdir()) == []
        assert fresh.shining() == {"lamp-0": held.uid}
        (fresh.lamps / "lamp-0").unlink()  # as the operator was told
        fresh.prepare(wanting)
        assert fresh.shining() == {"lamp-0": wanting.uid}
        fresh.unprepare(held)
        assert fresh.shining() == {"lamp-0": wanting.uid}


def test_a_file_that_is_not_damaged_is_the_drivers_alone_while_it_runs(operator: Operator, fresh: Inside) -> None:
    ref = fresh.claim("lamp-0")
    with fresh.running():
        fresh.wait_registered()
        fresh.prepare(ref)
        done = operator.state("forget", ref.uid, "--yes")
        assert done.status == 2
        assert f"its process holds {fresh.data}/instance.lock" in done.err
        fresh.assert_held(ref)
        fresh.unprepare(ref)
        fresh.assert_sound()
