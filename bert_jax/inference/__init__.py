"""Loaded models: prediction, search, added words and positions."""
