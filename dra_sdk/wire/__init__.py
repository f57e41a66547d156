"""Wire formats: what is written to the API server, to the kubelet's sockets, to CDI directories and to state files."""
