"""The chapter *The residual stream*: what it claims, measures, draws and asks."""
