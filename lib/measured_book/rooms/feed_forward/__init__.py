"""The chapter *The feed-forward network*: what it claims, measures, draws and asks."""
