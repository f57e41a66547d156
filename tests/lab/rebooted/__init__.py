"""Tests that run after the machine has booted again, with the disk and the cluster of the tests in `inside`."""

from pathlib import Path

from tests.lab.harness.layers import RESULTS

HELD, BESIDE = "held", "beside"
"""A pod with the claim of its name, and one without claim, which ran when the machine was turned off."""
STATE = Path(RESULTS, "held.json")
"""The CPUs that the claim had then, by its UID."""
