"""From a measurement to a figure."""
