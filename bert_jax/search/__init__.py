"""Searchers of vectors, sparse vectors and words; files of vectors; the fusion of results."""
