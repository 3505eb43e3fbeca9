"""The benchmark, a file for each concern; `cli.py` is the entry point. Python's standard library only."""
