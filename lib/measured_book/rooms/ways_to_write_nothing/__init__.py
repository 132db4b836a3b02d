"""Sinks, gates and bounded scores of a small language model, in *A budget to spend*: claims and measures."""
