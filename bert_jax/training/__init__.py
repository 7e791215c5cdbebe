"""Optimizer, schedule, state, step, loop, evaluation and logs; the same for every task."""
