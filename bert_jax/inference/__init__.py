"""A loaded model and what can be asked of it."""
