"""Labelled data: files → examples → batches of examples."""
