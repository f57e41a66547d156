"""The checks, one module per level. Each function's docstring is the sentence of the contract that it checks."""
