"""Name tables: what each of our parameters is called in the files of others, and how it lies."""
