"""Replay every module alone on its live inputs, and time it."""
