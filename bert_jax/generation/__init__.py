"""Search over a decoder: greedy, sampling, beams; which tokens may come next."""
