"""What tests of several folders share."""

import jaxtyping
import pytest
import torch

# The tensors of tests are small: more threads would only wait for one another, long when others work too.
torch.set_num_threads(1)


@pytest.fixture
def unhooked():
    """Switch off the shape checks that only tests have, to see the errors that a user sees."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
