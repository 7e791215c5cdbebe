"""How fast the machine that is here does the work of a config."""
