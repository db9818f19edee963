"""How well the diagnosis finds what is wrong, and leaves alone what is well: `python -m benchmarks.diagnosis`."""
