"""Inference: continuing texts with a model, one token after the other."""
