"""Setting interfaces up for a claim, moving them into its pod, and undoing both."""
