"""Labelled data: files → examples → batches of examples of like length."""
