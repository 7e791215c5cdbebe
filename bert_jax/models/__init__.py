"""BERT as pure Linen modules: no input, no output, no state."""
