"""What happens beside the training, one thing a file."""
