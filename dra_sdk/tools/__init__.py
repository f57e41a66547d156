"""What runs on a laptop or in CI, never on a node: scheduling as kube-scheduler does it, a simulator, conformance.

It imports nothing of `dra_sdk.node`. The packages that it needs beyond a node's are the extra `dra-sdk[tools]`.
"""
