"""Comparison with Hugging Face's transformers: numbers side by side, and causes of differences."""
