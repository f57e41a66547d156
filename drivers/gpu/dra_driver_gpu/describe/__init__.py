"""What a node's GPUs are, as devices of a ResourceSlice: whole, cut by MIG, or to be passed through."""

from dra_driver_gpu.describe.cards import Card, Size, read_cards
from dra_driver_gpu.describe.pool import Offer, pool

__all__ = ["Card", "Offer", "Size", "pool", "read_cards"]
