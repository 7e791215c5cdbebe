"""What labelled tasks are made of: their files and batches, labels and losses, their judging."""
