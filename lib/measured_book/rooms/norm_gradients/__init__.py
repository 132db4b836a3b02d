"""The chapter *Do small gradients make post-norm slow?*: what it claims, measures, draws and asks."""
