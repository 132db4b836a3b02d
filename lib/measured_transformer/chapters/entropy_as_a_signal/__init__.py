"""The chapter *A training that is going to fail*: what it claims, measures, draws and asks."""
