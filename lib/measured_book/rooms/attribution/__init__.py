"""The chapter *Which tokens matter*: what it claims, measures, draws and asks."""
