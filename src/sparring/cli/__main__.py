"""``python -m sparring.cli``."""

import sys

from sparring.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
