"""The process of one driver: wires the services together, owns the threads, the signals and the order of shutdown."""
