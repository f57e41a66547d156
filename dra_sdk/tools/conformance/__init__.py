"""Checks of any DRA driver in any language, as a black box over its sockets, its slices and the files it leaves."""
