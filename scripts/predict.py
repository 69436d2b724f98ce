"""The same as `graphfold predict`: arguments, exit codes and all."""

import sys

from graphfold.cli import main

if __name__ == "__main__":
    sys.exit(main(["predict", *sys.argv[1:]]))
