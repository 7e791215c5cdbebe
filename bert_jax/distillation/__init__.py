"""Distillation: a small model, the student, learns what a larger one, its teacher, answers."""
