"""The routes, one module per client: from its JSON to examples of tasks, and back."""
