"""Text to corpus, corpus to batches. TensorFlow is imported nowhere else."""
