"""Tests of the parts of the harness that need no cluster and no network."""
