"""The process of one driver: its settings, its parts and their connections, and the order of start and stop.

Source: KEP-4381; Kubernetes pkg/kubelet/pluginmanager for what a kubelet expects of the process.
"""
