"""What a Kubernetes release has that this package does not know, and where both judge or decide differently.

`make follow KUBE_VERSION=1.38.0` runs it. docs/following-kubernetes.md says how a release is taken in.

report          what is printed: differences by area and name, and how each part ended
api_facts       feature gates, kinds and fields of the API server, beside ours
cel_functions   functions and macros of CEL, beside ours
comparisons     random objects, expressions and pods, grouped by field and feature
suites          the tests of vectors, and those on a real kubelet
"""
