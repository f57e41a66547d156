"""Scheduling a whole snapshot, as kube-scheduler and the controllers around it would.

Pods with devices that are to be evacuated leave; claims are made from templates; pods are taken by priority, then by
age; each goes to the node with the best alternatives for its claims, of equal ones to the first in the snapshot's order
(kube-scheduler takes one by chance, or by what else it scores). At last claims without a pod are allocated. There is no
preemption, and nothing is looked at but nodes, devices, CPU and the like: no volumes, ports, spreading or affinity
between pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import (
    MAX_STEPS,
    Allocated,
    AllocationError,
    Allocator,
    Features,
    Inventory,
    PoolProblem,
    SearchLimitError,
)
from dra_sdk.tools.scheduling.cluster.attempts import Attempts, Fit, Misfit
from dra_sdk.tools.scheduling.cluster.claims import (
    EXTENDED_CLAIM,
    is_finished,
    is_owned,
    used_claims,
    with_generated_claims,
    without_imagined,
    without_pods,
)
from dra_sdk.tools.scheduling.cluster.contenders import Contenders
from dra_sdk.tools.scheduling.cluster.core import Node, Pod
from dra_sdk.tools.scheduling.cluster.evictions import evictions
from dra_sdk.tools.scheduling.cluster.extended import classes_of_resources
from dra_sdk.tools.scheduling.cluster.ledger import Ledger, key_of_pod
from dra_sdk.tools.scheduling.cluster.names import Key, generated_uid
from dra_sdk.tools.scheduling.cluster.notes import notes_on, priority_of
from dra_sdk.tools.scheduling.cluster.outcome import ClaimOutcome, Outcome, Placement
from dra_sdk.tools.scheduling.cluster.places import CORDON
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot
from dra_sdk.tools.scheduling.cluster.wishes import UnschedulableError, Wish, allocation_of, consumers, wish_of

#: Source: kube-scheduler, minFeasibleNodesToFind.
_ALL_TRIED_BELOW: Final = 100
_LEAST_STEPS: Final = 30_000


def schedule(snapshot: Snapshot, max_steps: int = MAX_STEPS) -> Outcome:
    """Who gets what on which node. Pods that run already stay where they are, unless they have to be evicted.

    A search for devices is given up after `max_steps`. Each that is leaves half as many to those that follow, down to
    30 000, so that a cluster full of claims without a solution has an answer in a time that can be waited for.
    """
    evicted = evictions(snapshot)
    gone = [Pod.model_validate(snapshot.pods_by_key[key]) for key in evicted.pods]
    current = without_imagined(without_pods(snapshot, gone), evicted.imagined)
    run = _Run(with_generated_claims(_without_stale_claims(current)), max_steps)
    run.place_all()
    run.imagine_all()
    after = run.ledger.after()
    placements = run.placements()
    notes = (*notes_on(after, placements), *(_pool_note(each) for each in run.inventory.problems))
    return Outcome(after, placements, tuple(run.outcomes()), {**evicted.pods, **evicted.imagined}, notes)


class _Run:
    """One pass over all pods and claims."""

    def __init__(self, snapshot: Snapshot, max_steps: int) -> None:
        features = Features.of(snapshot.profile)
        self.ledger = Ledger(snapshot)
        self.inventory = Inventory(snapshot.slices, features, snapshot.rules)
        share_id = partial(next, _share_ids(self.ledger.allocated))
        classes = snapshot.classes_by_name
        self._allocator = Allocator(self.inventory, classes, features, share_id=share_id, max_steps=max_steps)
        self._attempts = Attempts(self._allocator, self.ledger.allocated, self.ledger.room)
        self._classes = classes
        self._resources = classes_of_resources(snapshot.classes) if features.extended_resources else {}
        self._nodes = {each["metadata"]["name"]: (Node.model_validate(each), each) for each in snapshot.nodes}
        self._pods = [pod for each in snapshot.pods if not is_finished(pod := Pod.model_validate(each))]
        self._contenders: dict[str, Contenders] = {}
        self._placed: dict[Key, Placement] = {}
        self._refused: dict[Key, str] = {}

    def place_all(self) -> None:
        """Find a node for every pod that has none; pods for which there is none try again once devices are released."""
        waiting = sorted((pod for pod in self._pods if not pod.spec.node_name), key=_turn)
        for pod in self._pods:
            if pod.spec.node_name:
                self.ledger.occupy(pod)
        while waiting:
            released = sum(self._place(pod) for pod in waiting)
            waiting = [pod for pod in waiting if self._placed[key_of_pod(pod)].node is None] if released else []
        for pod in self._pods:
            if pod.spec.node_name:
                self._placed[key_of_pod(pod)] = self._running(pod)

    def imagine_all(self) -> None:
        """Allocate the claims that no pod uses as if one did that every node lets in but cordoned ones."""
        used = {key for each in self._pods for key in used_claims(each)}
        taints = {taint.key for node, _ in self._nodes.values() for taint in node.spec.taints} - {CORDON.key}
        tolerations = [{"key": key, "operator": "Exists"} for key in sorted(taints)]
        for key in [key for key in self.ledger.claims if key not in used and not self.ledger.is_allocated(key)]:
            claim = {"name": key[1], "resourceClaimName": key[1]}
            spec = {"resourceClaims": [claim], "tolerations": tolerations}
            fit, reason, _ = self._find(Pod.model_validate({"metadata": {"namespace": key[0]}, "spec": spec}))
            if fit is None:
                self._refused[key] = reason
            else:
                self.ledger.imagine(key, fit.node, fit.allocations[key[1]])

    def placements(self) -> tuple[Placement, ...]:
        """One for each pod, in the snapshot's order."""
        return tuple(self._placed[key_of_pod(pod)] for pod in self._pods)

    def outcomes(self) -> list[ClaimOutcome]:
        """One for each claim."""
        users = {key: each for each in reversed(self.placements()) for key in each.claims}
        found = []
        for key, claim in self.ledger.claims.items():
            user, refused = users.get(key), self._refused.get(key)
            node = self.ledger.imagined.get(key) or (user.node if user else None)
            reason = refused or (user.reason if user and allocation_of(claim) is None else "")
            imagined = key in self.ledger.imagined or refused is not None
            found.append(ClaimOutcome(key, allocation_of(claim), node, reason, imagined))
        return found

    def _place(self, pod: Pod) -> int:
        """Bind a pod, or note why it cannot be; how many claims had to give their devices back."""
        key = key_of_pod(pod)
        fit, reason, wish = self._find(pod)
        if wish is not None and fit is not None:
            self._placed[key] = Placement(key, fit.node, claims=self.ledger.bind(wish, fit), scheduled=True)
            return 0
        self._placed[key] = Placement(key, None, reason, tuple(used_claims(pod)))
        return 0 if wish is None else self._release(wish)

    def _find(self, pod: Pod) -> tuple[Fit | None, str, Wish | None]:
        try:
            wish = wish_of(pod, self.ledger.claims, self._classes, self._resources)
            return *self._best(wish), wish
        except (UnschedulableError, AllocationError) as error:
            if isinstance(error, SearchLimitError):
                limit = self._allocator.max_steps
                self._allocator.max_steps = min(limit, max(_LEAST_STEPS, limit // 2))
            return None, str(error), None

    def _best(self, wish: Wish) -> tuple[Fit | None, str]:
        """The first of the nodes that score best, or why there is none.

        In a small cluster the scheduler looks at all nodes, and an error on any of them ends the attempt.
        """
        best, best_score = None, -1
        contenders = self._of_kind(wish)
        enough = wish.best_score if len(self._nodes) >= _ALL_TRIED_BELOW else None
        for node, obj in contenders:
            found = self._attempts.fit(wish, node, obj)
            if isinstance(found, Misfit):
                contenders.turn_down(node.metadata.name, found)
            elif (score := wish.score(found.allocations)) > best_score:
                best, best_score = found, score
                if score == enough:
                    break
        return best, "" if best else contenders.summary(wish, self._attempts)

    def _of_kind(self, wish: Wish) -> Contenders:
        if wish.kind not in self._contenders:
            self._contenders[wish.kind] = Contenders(self._nodes)
        return self._contenders[wish.kind]

    def _release(self, wish: Wish) -> int:
        """Take devices from claims that keep the pod from nodes, so that it may fit there the next time."""
        released = self.ledger.release(wish, self._of_kind(wish).elsewhere)
        if released:
            self._contenders.clear()
        return released

    def _running(self, pod: Pod) -> Placement:
        """A pod that names its node: the scheduler passed it by if it has no devices, and will not come back to it."""
        key, claims = key_of_pod(pod), tuple(used_claims(pod))
        for each in claims:
            users = consumers(self.ledger.claims.get(each, {}))
            if not any(user.get("uid") == pod.metadata.uid for user in users):
                reason = f"spec.nodeName passes the scheduler by, so nobody gives it the devices of claim {each[1]}"
                return Placement(key, None, reason, claims)
        return Placement(key, pod.spec.node_name, claims=claims)


def _share_ids(allocated: Allocated) -> Iterator[str]:
    """IDs of shares that are the same in every run, and not in use."""
    used = {each for ids in allocated.shares.values() for each in ids}
    return (each for number in count() if (each := generated_uid("Share", ("", str(number)))) not in used)


def _pool_note(problem: PoolProblem) -> str:
    return f"pool {problem.pool} of driver {problem.driver} is {problem.kind}: {problem.reason}"


def _turn(pod: Pod) -> tuple[int, bool, str]:
    """Higher priorities first, then older pods; those that were not created yet come last, in the snapshot's order."""
    created = pod.metadata.creation_timestamp
    return -priority_of(pod.spec), created is None, created or ""


def _without_stale_claims(snapshot: Snapshot) -> Snapshot:
    """Without claims for extended resources of pods that have no node: the scheduler makes them anew each time."""
    waiting = [pod for each in snapshot.pods if not (pod := Pod.model_validate(each)).spec.node_name]
    stale: Sequence[JSON] = [
        claim
        for claim in snapshot.claims
        if (claim["metadata"].get("annotations") or {}).get(EXTENDED_CLAIM) == "true"
        and any(is_owned(claim, pod) for pod in waiting)
    ]
    return replace(snapshot, claims=tuple(each for each in snapshot.claims if each not in stale)) if stale else snapshot
