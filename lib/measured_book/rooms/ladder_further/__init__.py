"""Batch sizes and the longest runs of *How long is long enough?*: claims and measurements."""
