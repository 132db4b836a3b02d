"""Seeing and replacing what passes a tap."""
