"""Optimizer, schedule, state, step, loop and logs; the same for every task."""
