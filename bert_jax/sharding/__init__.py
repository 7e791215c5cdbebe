"""Devices as a mesh, and the tables that map array axes to mesh axes."""
