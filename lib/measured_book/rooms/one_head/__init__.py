"""The chapter *One head at a time misleads*: what it claims, measures, draws and asks."""
