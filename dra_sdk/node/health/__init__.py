"""The health of devices: what is known now, who wants to hear of it, and the taints that keep pods away."""
