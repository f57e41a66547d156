"""What runs on a laptop or in CI: scheduling as kube-scheduler does it, a simulator, conformance, manifests.

It imports nothing of `dra_sdk.node`. The packages that it needs beyond a node's are the extra `dra-sdk[tools]`.
"""
