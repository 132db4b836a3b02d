"""Settings of the property tests."""

from hypothesis import settings

# A busy machine is slow now and then, and the first call loads scipy; neither is a failure.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
