"""Tests of the harness where nothing else would notice: what it removes, whom it kills, how it says why it failed."""
