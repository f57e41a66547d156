"""What driver authors test with: fake machines written to a directory, and whatever else needs no cluster."""
