"""Workloads that ship, and the way to a user's own."""
