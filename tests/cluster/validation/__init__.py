"""The same objects, mutated at random, for a real API server and for the checks of this package: both must agree.

`objects` are good ones of every kind, with every field. `mutate` breaks up to three things in them, most often with
values at a limit. `servers` sends each to a real API server as a dry run, and to the store of the simulator, whose
answers are those of `dra_sdk.wire.validation`. What is compared: whether it is taken, which fields are refused for
which type of reason, and what would be stored. `python -m tests.cluster.validation` runs it by hand.
"""
