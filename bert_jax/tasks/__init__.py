"""One file for each kind of problem; a config names it by `task`.

A file here is all that training and evaluation need: nothing else names it. That users can ask the
model by the same name takes a line in each of two tables: `TASKS` of `inference.loading`, which
says what `bert_jax.load(path, task)` reads, and `TASKS` of `inference.predictions.tasks`, which
says how `bert-jax predict --task` answers a file.
"""
