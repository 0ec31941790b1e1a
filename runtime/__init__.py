"""From emitted C to running code: find a compiler, build through an on-disk cache, load, run, and write the Python-free artifact.

Takes `Source` and `Program`, gives callables and folders. Imports no isl; everything above it imports this package by module.
"""
