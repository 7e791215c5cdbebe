"""Model families, one module each; `family.find_family` finds a module by its name."""
