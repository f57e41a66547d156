"""Explanations of many random claims: they agree with the scheduler, and never leave anybody without a reason."""

from __future__ import annotations

import random
from functools import cache

import pytest

from dra_sdk.tools.scheduling.cluster import SchedulingOutcome, schedule
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot, object_key
from dra_sdk.tools.scheduling.explain import Explainer, format_explanation
from tests.tools.scheduling.clusters import (
    GPU,
    JSON,
    NIC,
    NUMA,
    PROFILES,
    ROOT,
    claim,
    cluster,
    exactly,
    gpus,
    mig,
    nics,
)
from tests.tools.scheduling.explain.situations import A100, BIG, MIG, profile

SEEDS = 25


def node(rng: random.Random, name: str) -> list[JSON]:
    taints = {"taints": [{"key": "broken", "effect": "NoSchedule"}]} if rng.random() < 0.2 else {}
    cards = mig(name, rng.randint(1, 2)) if rng.random() < 0.4 else [
        gpus(name, rng.randint(1, 4), rng.choice(["40Gi", "80Gi"]), rng.choice(["A100", "H100"]), **taints)
    ]  # fmt: skip
    return [*cards, nics(name, rng.randint(1, 4))] if rng.random() < 0.7 else cards


def wanted(rng: random.Random, name: str) -> JSON:
    gpu = exactly("gpu", GPU, *rng.sample([BIG, A100], rng.randint(0, 2)), count=rng.randint(1, 3))
    part = exactly("part", MIG, profile(rng.choice(list(PROFILES))), count=rng.randint(1, 3))
    nic = exactly("nic", NIC, count=rng.randint(1, 2))
    every = exactly("every", NIC, allocationMode="All")
    strict = exactly("gpu", GPU, 'device.attributes["gpu.nvidia.com"].productName == "H100"')
    requests = rng.choice([[gpu], [part], [gpu, nic], [part, nic], [every], [strict, every], [nic]])
    kind = rng.choice(["matchAttribute", "distinctAttribute"])
    constraints = [{kind: rng.choice([ROOT, NUMA])}] if rng.random() < 0.4 else []
    return claim(name, *requests, constraints=constraints)


def random_cluster(seed: int) -> Snapshot:
    rng = random.Random(seed)
    nodes = [obj for index in range(rng.randint(1, 4)) for obj in node(rng, f"n{index}")]
    return cluster(nodes, [wanted(rng, f"c{index}") for index in range(6)])


@cache
def scheduled(seed: int) -> SchedulingOutcome:
    return schedule(random_cluster(seed))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_explanations_agree_with_scheduling(seed: int):
    outcome = scheduled(seed)
    for claim_outcome in outcome.claims:
        explanation = Explainer(outcome).claim(claim_outcome.claim)
        assert explanation.satisfiable == (claim_outcome.allocation is not None), (
            f"seed {seed}, {claim_outcome.claim}: {explanation.summary}"
        )
        assert format_explanation(explanation).startswith(explanation.summary)
        for report in (one for one in explanation.reports if not one.fits):
            failing = [one for one in report.requests if not one.enough]
            assert failing or report.conflicts or report.error, f"seed {seed}, {claim_outcome.claim}"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_suggested_claims_to_free_make_the_claim_fit(seed: int):
    outcome = scheduled(seed)
    waiting = [claim_outcome.claim for claim_outcome in outcome.unallocated]
    for claim_outcome in outcome.unallocated:
        after = outcome.snapshot.without("ResourceClaim", *(key for key in waiting if key != claim_outcome.claim))
        for change in Explainer(outcome).claim(claim_outcome.claim).changes:
            if change.kind == "claim-freed":
                names = [change.text.split()[1], *change.others]
                assert {("default", name) for name in names} <= {object_key(one) for one in after.claims}
                for name in names:
                    again = schedule(after.without("ResourceClaim", ("default", name)))
                    assert again.claims_by_key[claim_outcome.claim].allocation, (
                        f"seed {seed}, {claim_outcome.claim}: {change.text}"
                    )
