"""What `bert-jax predict` can do: one file a task, found by the table in `tasks.py`."""
