"""Repeated data, batch sizes and the longest runs, in the chapter *How long is long enough?*: claims and measurements."""
