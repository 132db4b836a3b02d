"""The chapter *A budget to spend*: what it claims, measures, draws and asks."""
