"""The candidates that a request can choose from, looked for only as far as somebody asks.

Whatever devices of the request are chosen leaves the others as they are, so each is looked at once for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from dra_sdk.tools.scheduling.allocator.allocated import DeviceId
from dra_sdk.tools.scheduling.allocator.choices import Choices
from dra_sdk.tools.scheduling.allocator.errors import SelectorError
from dra_sdk.tools.scheduling.allocator.needs import Need
from dra_sdk.tools.scheduling.allocator.pools import Candidate


class Eligible:
    """Free devices that a request selects and that it can have as far as taints and capacity go, in order."""

    __slots__ = ("_found", "_more")

    def __init__(self, claim: int, need: Need, candidates: Sequence[Candidate], choices: Choices) -> None:
        self._found: list[Candidate] = []
        self._more = _eligible(claim, need, candidates, choices)

    def __getitem__(self, index: int) -> Candidate:
        return self._found[index]

    def reach(self, count: int) -> bool:
        """Whether there are at least `count` of them; looks no further than that."""
        while len(self._found) < count:
            found = next(self._more, None)
            if found is None:
                return False
            self._found.append(found)
        return True


def _eligible(claim: int, need: Need, candidates: Sequence[Candidate], choices: Choices) -> Iterator[Candidate]:
    request = need.request
    for candidate in candidates:
        choices.looks += 1
        if (
            not choices.in_use(candidate.id, request, claim)
            and need.selectable(candidate)
            and choices.has_capacity(request, candidate.device)
            and choices.barred(request, candidate.device) is None
        ):
            yield candidate


def hopeless(need: Need, candidates: Sequence[Candidate], taken: Collection[DeviceId]) -> bool:
    """Whether there are too few devices for what is needed first: cheap to say, and so mostly on full nodes.

    `taken` are the devices nobody can have. Not where looking closer would be an error.
    """
    missing = need.count
    if need.request.admin or missing < 1:
        return False
    known = need.selection.known
    for candidate in candidates:
        if candidate.id in taken or known.get(candidate.content) is False:
            continue
        if need.selectable(candidate):
            missing -= 1
            if not missing or (need.judged and need.fails(candidate)):
                return False
    return True


def survey(need: Need, candidates: Sequence[Candidate], taken: Collection[DeviceId]) -> int | None:
    """How many devices that are not taken a request selects; None if that, or asking for capacity, may be an error."""
    try:
        found = [each for each in candidates if each.id not in taken and need.selectable(each)]
    except SelectorError:
        return None
    return None if any(map(need.fails, found)) else len(found)
