"""From pools to ResourceSlices in the API server: `plan` makes slices, `diff` finds writes, `controller` does them.

Source: resource.k8s.io/v1 ResourceSlice, KEP-4381; k8s.io/dynamic-resource-allocation, package resourceslice.
"""
