"""The inside of the Transformer, as a library: parts, models, taps, evidence."""

__version__ = "0.1.0"
