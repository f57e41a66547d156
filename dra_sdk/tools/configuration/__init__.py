"""Opaque configuration at the desk: which objects have a wrong one, and the admission policy that refuses it."""
