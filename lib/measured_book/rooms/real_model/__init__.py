"""The chapter *A real model on the bench*: what it claims, measures, draws and asks."""
