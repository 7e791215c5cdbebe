"""Text to corpus, corpus to batches. Only this folder imports TensorFlow."""
