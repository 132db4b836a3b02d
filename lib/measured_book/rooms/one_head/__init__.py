"""*One head at a time misleads*, part of *Many heads*: what it claims, measures, draws and asks."""
