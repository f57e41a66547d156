"""A kubelet emulator: what Kubernetes 1.36's kubelet does with DRA drivers, over the real sockets.

Source: Kubernetes 1.36 pkg/kubelet/pluginmanager and pkg/kubelet/cm/dra.
"""
