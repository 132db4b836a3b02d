"""How fast and how lean the library is, beside its peers: `python -m benchmarks`."""

import os

os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # PyTorch's profiler announces each of its runs
