"""What kube-scheduler decides about devices: which ones a claim gets on which node, and why it gets none.

`allocator` allocates devices on one node, `cluster` schedules a whole cluster, `explain` says why a claim cannot be
allocated and what would help, and `picture` draws the result. Everything is pure: objects of the API come in as JSON,
allocations and explanations go out.
Source: KEP-4381 and its successors; k8s.io/dynamic-resource-allocation, packages structured, resourceslice/tracker and
resourceclaim; kube-scheduler, plugin DynamicResources.
"""
