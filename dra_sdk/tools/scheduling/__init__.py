"""The match: which devices a claim gets on which node, as kube-scheduler decides it, and why it gets none.

Pure: objects of the API come in as JSON, allocations and explanations go out. Source: KEP-4381 and its successors;
k8s.io/dynamic-resource-allocation, packages structured, resourceslice/tracker and resourceclaim.
"""
