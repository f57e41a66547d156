"""Endurance: tens of thousands of pods come and go on one node, and what its drivers use stays the same."""
