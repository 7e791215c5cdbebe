"""A loaded model and what can be done with it."""
