"""The chapter *Depth and heads*: what it claims, measures, draws and asks."""
