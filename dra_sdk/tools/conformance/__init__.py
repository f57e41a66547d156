"""Checks of any DRA driver, in any language, as a black box: its sockets, its ResourceSlices and its files."""
