"""The process of one driver: its settings, its parts and their connections, and the order of start and stop."""
