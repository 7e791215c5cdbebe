"""Heads, one module each; `models.head.find_head` finds a module by its name."""
