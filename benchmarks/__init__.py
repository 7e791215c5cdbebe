"""Measurements: `python -m benchmarks` in a clone lists them; `works.py` has the table."""
