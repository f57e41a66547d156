"""`python -m tests.cluster.impatient run …`: `dra-sdk` whose drivers count the repetitions of an event at once.

Others do it once in `events.SERIES_SECONDS`, which is longer than a test may wait.
"""

from __future__ import annotations

import sys

from dra_sdk.cli.main import main
from dra_sdk.node.runtime import events

if __name__ == "__main__":
    setattr(events, "SERIES_SECONDS", 0.0)  # noqa: B010 (it is Final to everybody else)
    sys.exit(main())
