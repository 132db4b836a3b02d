"""Experts after 20 tokens per weight, in the chapter *Mixtures of experts*: what it claims and measures."""
