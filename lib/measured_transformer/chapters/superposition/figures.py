"""Figures about superposition: results in, drawings out."""
