"""The parts of the cluster harness that need no cluster, no root and no network."""
