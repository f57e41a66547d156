"""A plugin of the Node Resource Interface (NRI), which acts when the container runtime starts pods and containers.

Source: containerd/nri 0.3 to 0.12; containerd/ttrpc 1.2.
"""
