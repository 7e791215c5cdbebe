"""One file for each kind of problem; a config names it by `task`."""
