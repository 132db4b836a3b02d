"""The chapter *ReLU, GELU or SwiGLU, and how wide?*: what it claims, measures, draws and asks."""
