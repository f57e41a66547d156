"""From pools to ResourceSlices in the API server: `plan` makes slices, `diff` finds writes, `controller` does them."""
