"""The chapter *Inside a published sentence model*: what it claims, measures, draws and asks."""
