"""Exercises of the chapter on superposition."""
