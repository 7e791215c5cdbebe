"""What a training costs, before it is started: memory, FLOPs, collectives, time, from shapes."""
