"""What tests of several folders share."""

import jaxtyping
import pytest


@pytest.fixture
def unhooked():
    """Switch off the shape checks that only tests have, to see the errors that a user sees."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
