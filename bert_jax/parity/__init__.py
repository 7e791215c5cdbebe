"""Our reading of a model against Hugging Face's: numbers side by side, and why they differ."""
