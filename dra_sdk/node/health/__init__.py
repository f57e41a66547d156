"""The health of devices: the reports of the driver, the streams to the kubelet, and taints that keep pods away.

Source: KEP-4680 for health, KEP-5055 for taints.
"""
