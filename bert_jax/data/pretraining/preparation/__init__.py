"""Text to corpus: read, split into sentences, encode, write."""
