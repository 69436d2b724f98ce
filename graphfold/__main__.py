"""`python -m graphfold`: the same as the `graphfold` command."""

import sys

from graphfold.cli import main

if __name__ == "__main__":
    sys.exit(main())
