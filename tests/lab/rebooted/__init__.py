"""Tests that run after the machine has booted again, with the disk and the cluster of the tests in `inside`."""

from pathlib import Path

from tests.lab.harness.layers import RESULTS

HELD = Path(RESULTS, "held.json")
"""The CPUs that the pod `held` had before, by the UID of its claim."""
