"""The chapter *The scale*: what it claims, measures, draws and asks."""
