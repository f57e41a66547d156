"""The search for devices: depth first with backtracking; the first solution wins.

Claims, their requests and the devices of each request are handled one after the other. Candidates are tried in the
order of the node. Each set of devices is tried once for a request, not in every order. Of alternatives, the first wins
with which everything after it can be satisfied. So the order decides which devices a claim gets.

Open choices are kept on a stack of their own, because pods may request more devices than Python's stack allows.
Source: k8s.io/dynamic-resource-allocation, structured (1.36). The order is the same; branches that cannot succeed
because devices are missing are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from dra_sdk.tools.scheduling.allocator.allocation_errors import AllocationError, SearchLimitError
from dra_sdk.tools.scheduling.allocator.claim_requests import MAX_RESULTS, ParsedClaim, ParsedRequest
from dra_sdk.tools.scheduling.allocator.device_choices import DeviceChoice, DeviceChoices
from dra_sdk.tools.scheduling.allocator.eligible_devices import EligibleDevices, RequestNeed, count_selected
from dra_sdk.tools.scheduling.allocator.pools import Candidate

_EXAMINED_PER_STEP: Final = 4
"""Examining this many devices takes as long as one step, or as trying one device: about 4 µs."""


class SearchPosition(NamedTuple):
    """The next device to choose; all fields are indices.

    claim: the claim.
    group: the request of the claim.
    alternative: the alternative of the request; None while it has to be chosen.
    device: the number of the device within the request.
    start: the first eligible device to try.
    """

    claim: int
    group: int = 0
    alternative: int | None = None
    device: int = 0
    start: int = 0


class StepResult(Enum):
    """How a step of the search ended."""

    DONE = "all devices are chosen"
    FAILED = "no device can be chosen"
    TOO_MANY = "the claim would have more devices than a claim may have"


class OpenChoice(Protocol):
    """A choice that may be changed when the search backtracks."""

    def resume(self, result: StepResult | None) -> SearchPosition | StepResult:
        """Return the next possibility, or how the choice ends if there is none.

        `result` is how the last possibility ended, None for the first call.
        """


@dataclass(slots=True, eq=False)
class NextClaim:
    """The step from one claim to the next; that the next claim is too large is only a failure for this one."""

    _claim: int

    def resume(self, result: StepResult | None) -> SearchPosition | StepResult:
        """See OpenChoice."""
        return SearchPosition(self._claim) if result is None else StepResult.FAILED


@dataclass(slots=True, eq=False)
class AlternativeChoice:
    """The choice between the subrequests of a request, in order of preference."""

    _alternatives: dict[tuple[int, int], int]
    _position: SearchPosition
    _count: int
    _next: int = 0
    _too_many: bool = True

    def resume(self, result: StepResult | None) -> SearchPosition | StepResult:
        """See OpenChoice."""
        if result is StepResult.FAILED:
            self._too_many = False
        index = self._next
        if index == self._count:
            return StepResult.TOO_MANY if self._too_many else StepResult.FAILED
        self._next += 1
        self._alternatives[self._position.claim, self._position.group] = index
        return self._position._replace(alternative=index)


@dataclass(slots=True, eq=False)
class AllModeDevice:
    """A device for a request in mode All: exactly this one."""

    _choices: DeviceChoices
    _position: SearchPosition
    _request: ParsedRequest
    _candidate: Candidate
    _choice: DeviceChoice | None = None

    def resume(self, result: StepResult | None) -> SearchPosition | StepResult:
        """See OpenChoice."""
        if self._choice is not None and result is not None:
            self._choices.undo(self._choice)
            return result
        position = self._position
        self._choice = self._choices.choose(position.claim, self._request, self._candidate, required=True)
        if self._choice is None:
            return StepResult.FAILED
        return position._replace(device=position.device + 1)


class ExactCountDevice:
    """A device for a request in mode ExactCount: the first eligible one that can be chosen, then the next."""

    __slots__ = ("_choice", "_choices", "_examined", "_needed", "_next", "_position", "_usable", "eligible", "need")

    def __init__(
        self, choices: DeviceChoices, position: SearchPosition, need: RequestNeed, eligible: EligibleDevices
    ) -> None:
        self._choices, self._position, self.need, self.eligible = choices, position, need, eligible
        #: How many more usable devices the request needs, this one included; None if every device must be tried.
        self._needed = None if choices.depends_on_undone(position.claim) else need.count - position.device
        self._examined = position.start
        self._usable: list[int] = []
        self._next = 0
        self._choice: DeviceChoice | None = None

    def resume(self, result: StepResult | None) -> SearchPosition | StepResult:
        """See OpenChoice."""
        self.undo()
        return self._choose_next() if result is not StepResult.TOO_MANY else result

    def undo(self) -> None:
        """Undo the choice of the device, if one is chosen."""
        if self._choice is not None:
            self._choices.undo(self._choice)
            self._choice = None

    @property
    def nothing_tried(self) -> bool:
        """Whether not even the first device of the request could be tried."""
        return self._next == 0 and self._position.device == 0

    def _choose_next(self) -> SearchPosition | StepResult:
        position = self._position
        while self._has_usable(self._next + (self._needed or 1)):
            index = self._usable[self._next]
            self._next += 1
            candidate = self.eligible[index]
            self._choice = self._choices.choose(position.claim, self.need.request, candidate, required=False)
            if self._choice is not None:
                return position._replace(device=position.device + 1, start=index + 1)
        return StepResult.FAILED

    def _has_usable(self, count: int) -> bool:
        """Return whether there are `count` devices that no constraint excludes; searches no further than that."""
        while len(self._usable) < count:
            index = self._examined
            if not self.eligible.has_at_least(index + 1):
                return False
            self._examined += 1
            self._choices.examined += 1
            device = self.eligible[index].device
            if self._needed is None or not self._choices.excluded(self._position.claim, self.need.request, device):
                self._usable.append(index)
        return True


class Search:
    """A search on one node, which is stopped once `work` exceeds `limit`.

    Afterwards, `choices` has the devices, `chosen_alternatives` the alternative of each request with `firstAvailable`
    by the indices of claim and request, and `steps` the number of steps.
    """

    def __init__(
        self,
        parsed_claims: Sequence[ParsedClaim],
        needs: Mapping[ParsedRequest, RequestNeed],
        candidates: Sequence[Candidate],
        choices: DeviceChoices,
        *,
        limit: int,
    ) -> None:
        self.parsed_claims, self.needs, self.candidates, self.choices = parsed_claims, needs, candidates, choices
        self.chosen_alternatives: dict[tuple[int, int], int] = {}
        self.steps = 0
        self._limit = limit
        self._open_choices: list[OpenChoice] = []
        self._selected_counts: dict[ParsedRequest, int | None] = {}

    def run(self) -> bool:
        """Return whether all devices could be chosen."""
        result: SearchPosition | StepResult | None = SearchPosition(0)
        while True:
            if isinstance(result, SearchPosition):
                result = self._advance(result)
                if result is StepResult.DONE:
                    return True
            if not self._open_choices:
                break
            choice = self._open_choices[-1]
            result = choice.resume(result)
            self._check_limit()
            if isinstance(result, StepResult):
                self._open_choices.pop()
                if isinstance(choice, ExactCountDevice) and choice.nothing_tried:
                    self._skip_useless_choices(choice.need)
        if result is StepResult.TOO_MANY:
            raise AllocationError(f"claim {self.parsed_claims[0].label}: needs more than {MAX_RESULTS} devices")
        return False

    def _advance(self, position: SearchPosition) -> StepResult | None:
        """Go to a position; return None if that puts a choice on the stack."""
        while True:
            self.steps += 1
            self._check_limit()
            if position.claim >= len(self.parsed_claims):
                return StepResult.DONE
            groups = self.parsed_claims[position.claim].groups
            if position.group >= len(groups):
                self._open_choices.append(NextClaim(position.claim + 1))
                return None
            group = groups[position.group]
            if group.prioritized and position.alternative is None:
                self._open_choices.append(
                    AlternativeChoice(self.chosen_alternatives, position, len(group.alternatives))
                )
                return None
            need = self.needs[group.alternatives[position.alternative or 0]]
            if need.all_devices is not None and not need.all_devices:
                return StepResult.FAILED
            if position.device < need.count:
                return self._open_device_choice(position, need)
            position = SearchPosition(position.claim, position.group + 1)

    def _count_selected(self, need: RequestNeed) -> int | None:
        """Return how many devices a request selects if nothing is chosen for others, see `count_selected`."""
        request = need.request
        if request not in self._selected_counts:
            unavailable = () if request.admin_access else self.choices.unavailable
            self._selected_counts[request] = count_selected(need, self.candidates, unavailable)
        return self._selected_counts[request]

    def _skip_useless_choices(self, need: RequestNeed) -> None:
        """If no other choice can satisfy a request, remove the choices before it.

        Choices for requests whose selectors may raise an error stay, so that the error is found.
        """
        selected = self._count_selected(need)
        if (
            selected is None
            or selected >= need.count
            or any(map(self.choices.depends_on_undone, range(len(self.parsed_claims))))
        ):
            return
        while self._open_choices:
            choice = self._open_choices[-1]
            if isinstance(choice, ExactCountDevice) and self._count_selected(choice.need) is not None:
                choice.undo()
            elif not isinstance(choice, NextClaim):
                return
            self._open_choices.pop()

    @property
    def work(self) -> int:
        """The cost of the search: steps, devices tried and devices examined, in steps."""
        return self.steps + self.choices.tried + self.choices.examined // _EXAMINED_PER_STEP

    def _check_limit(self) -> None:
        if self.work > self._limit:
            names = ", ".join(parsed.label for parsed in self.parsed_claims)
            given_up = f"the search was given up after {self._limit} steps"
            raise SearchLimitError(f"claim {names}: {given_up}, as kube-scheduler gives up after 10 s")

    def _open_device_choice(self, position: SearchPosition, need: RequestNeed) -> StepResult | None:
        if len(self.choices.by_claim[position.claim]) + need.count - position.device > MAX_RESULTS:
            return StepResult.TOO_MANY
        if need.all_devices is not None:
            self._open_choices.append(
                AllModeDevice(self.choices, position, need.request, need.all_devices[position.device])
            )
            return None
        previous = self._open_choices[-1] if position.device else None
        if isinstance(previous, ExactCountDevice):
            eligible = previous.eligible
        else:
            eligible = EligibleDevices(position.claim, need, self.candidates, self.choices)
        self._open_choices.append(ExactCountDevice(self.choices, position, need, eligible))
        return None
