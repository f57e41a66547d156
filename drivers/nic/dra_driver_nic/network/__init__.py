"""The network of a node or a pod: its interfaces and RDMA devices, read and changed by netlink, ethtool and sysfs."""
