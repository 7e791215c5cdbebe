"""What all labelled tasks share: their files, their batches, their evaluation."""
