"""Modules of this layer."""
