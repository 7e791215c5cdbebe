"""Distillation: a small model, the student, learns the outputs of a larger model, its teacher."""
