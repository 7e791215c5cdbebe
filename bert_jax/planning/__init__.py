"""The cost of a training, computed before it starts: memory, FLOPs, collectives, time."""
