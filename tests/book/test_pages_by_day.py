"""The printed pages by day: in the light theme on a telephone. (Nothing depends on width and theme at once.)"""

from __future__ import annotations

from visiting import Visits


class TestByDay(Visits):
    LOOKS = (("telephone", "light"),)
