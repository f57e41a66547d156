"""The client of the API server: JSON in, JSON out, with a deadline for each answer.

Only this package imports the kubernetes client, for credentials, and only when it first needs it. Source: the
Kubernetes API conventions; RFC 9112.
"""
