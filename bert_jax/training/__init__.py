"""Optimizer, schedule, state, step, loop, evaluation and logs; none of it knows a task."""
