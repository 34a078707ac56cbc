"""What the attributed kernels and the replays mean: partition, error terms, figures."""
