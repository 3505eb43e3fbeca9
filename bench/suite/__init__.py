"""The benchmark, a file for each concern; `cli.py` is the door. Python's standard library only."""
