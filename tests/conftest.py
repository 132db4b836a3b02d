"""What tests of several folders share."""

import os

# Unit tests compute on the CPU, also where there is a GPU: hidden before PyTorch looks for one. A test that is
# marked with `gpu` runs in a process of its own that sees it again.
SEEN = os.environ.get("CUDA_VISIBLE_DEVICES")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["MEASURED_DEVICE"] = "cpu"

import jaxtyping  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

# The tensors of tests are small: more threads would only wait for one another, long when others work too.
torch.set_num_threads(1)


@pytest.fixture
def unhooked():
    """Switch off the shape checks that only tests have, to see the errors that a user sees."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
