"""The same slices, classes, claims and pods for a real control plane and for ours (`tools.scheduling`): both agree.

Cases are drawn from a seed (`generate`), applied to a real API server and kube-scheduler with nodes that are mere
objects (`real`), and to the offline checks and the allocator of this package (`ours`). What is compared, for each
object: whether the API server takes it, and which fields it refuses. For each pod: on which nodes it could run, and the
exact allocation of its claims on the one it got. `python -m tests.cluster.differential` runs it by hand.
"""
