"""Emitters: a LoopNest becomes Source text. Free of isl; ISAs and dialects are data."""
