"""What dual encoders, late interaction and sparse vectors share in training and evaluation."""
