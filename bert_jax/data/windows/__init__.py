"""Windows over texts that are too long for one row."""
