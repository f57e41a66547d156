"""A DRA driver of a few lines that keeps to the whole contract, and one fault for each way not to."""
