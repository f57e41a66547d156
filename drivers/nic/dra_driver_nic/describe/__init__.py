"""The network devices of a node, and which of them are published, with what attributes."""
