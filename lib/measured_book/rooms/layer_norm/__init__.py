"""The chapter *What a layer norm does to a vector*: what it claims, measures, draws and asks."""
