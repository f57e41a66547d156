"""The client of the API server. Only this package imports `kubernetes`, when it first needs it."""
