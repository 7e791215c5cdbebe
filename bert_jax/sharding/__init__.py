"""Devices as a mesh, and which array axis lies on which of its axes."""
