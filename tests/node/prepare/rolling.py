"""One of several processes that work on the same directories, as in a rolling update.

Run as a program: `rolling.py DIRECTORY SEED`. It prepares and unprepares claims that all processes share, and one of
its own; prints one line of JSON with the errors it met, by class.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from pathlib import Path

from dra_sdk.errors import DraError
from dra_sdk.model.claim import ClaimRef
from tests.node.prepare.world import World

ROUNDS = 60


def shared_claims(world: World) -> list[ClaimRef]:
    """Six claims that fight for three lamps."""
    return [world.claim(f"u-{index}", f"lamp-{index % 3}", f"lamp-{(index + 1) % 3}") for index in range(6)]


def main(root: Path, seed: int) -> None:
    """Prepare and unprepare at random."""
    world = World(root)
    claims = shared_claims(world)
    own = world.claim(f"own-{seed}", f"lamp-{4 + seed}")
    preparer = world.preparer(shared=True)
    chance = random.Random(seed)
    errors = Counter[str]()
    for _ in range(ROUNDS):
        try:
            chance.choice([preparer.prepare, preparer.unprepare])(chance.choice(claims))
        except DraError as error:
            errors[type(error).__name__] += 1
        preparer.prepare(own)
        assert any(own.uid in name for name in os.listdir(world.cdi)), "another process removed our spec"
        preparer.unprepare(own)
    print(json.dumps(errors))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
