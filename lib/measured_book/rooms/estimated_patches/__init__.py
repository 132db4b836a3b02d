"""Patching and its estimates by gradients, in the chapter *Repeats and rules*: what it claims and measures."""
