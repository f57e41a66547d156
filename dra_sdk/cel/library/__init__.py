"""The functions that Kubernetes gives to the selectors of devices, one module a library."""
