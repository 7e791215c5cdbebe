"""Pre-training data: text to a corpus of token ids, corpus to masked examples and batches."""
