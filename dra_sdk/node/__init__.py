"""What runs as root on every node: the process of a driver, between the API server, the kubelet and the hardware.

It imports nothing of `dra_sdk.tools` or `dra_sdk.testing`. Source: KEP-4381; `docs/architecture.md` follows a claim
through it.
"""
