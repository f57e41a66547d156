"""Allocation side by side with the Go allocator: the same nodes, slices, classes and claims for both in one run."""
