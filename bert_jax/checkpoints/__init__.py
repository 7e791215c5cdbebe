"""Checkpoints: of runs (orbax), and model directories in Hugging Face's layout."""
