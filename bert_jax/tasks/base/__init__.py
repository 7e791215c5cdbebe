"""The interfaces of all tasks: `Task`, `LabelledTask`, `Predictor` and `PredictSpec`."""
