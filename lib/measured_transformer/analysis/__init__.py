"""Measurements on parts and models."""
