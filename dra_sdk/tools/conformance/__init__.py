"""Checks of any DRA driver, in any language, as a black box: its sockets, its ResourceSlices and its files.

Each check names the contract that it checks: the Kubernetes API, the kubelet, a KEP, or the Container Device Interface
specification. KEP-5970 is the proposed upstream suite.
"""
