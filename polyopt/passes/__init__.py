"""Graph-level passes: shape inference, simplification, fusion, storage, the memory plan."""
