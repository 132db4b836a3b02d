"""Entry point of `python -m bookpress`."""

import sys

from bookpress.cli import main

if __name__ == "__main__":
    sys.exit(main())
