"""The chapter *The sum and its paths*: what it claims, measures, draws and asks."""
