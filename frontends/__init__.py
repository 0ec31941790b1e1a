"""Front ends: ONNX models become Graphs, plain Python loop nests become Scops."""
