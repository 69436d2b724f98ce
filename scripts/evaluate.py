"""The same as `graphfold evaluate`: arguments, exit codes and all."""

import sys

from graphfold.cli import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
