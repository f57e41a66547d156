"""The API server: the only package that imports `kubernetes`, and only when it is first needed."""
