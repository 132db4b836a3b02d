"""Synthetic tasks with an exact answer and a known best loss."""
