"""Entry point of `python -m bookpress`."""

from bookpress.cli import main
from bookpress.printing import leave

if __name__ == "__main__":
    leave(main())
