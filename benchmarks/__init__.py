"""What introspection costs: `python -m benchmarks.run`."""
