"""What all tasks share: the interfaces `Task`, `LabelledTask`, `Predictor` and `PredictionTask`."""
