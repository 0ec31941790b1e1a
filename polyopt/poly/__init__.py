"""Facts about Scops, asked of isl: accesses, dependences, legality, footprints, structure."""
