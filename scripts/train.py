"""The same as `graphfold train`: arguments, exit codes and all."""

import sys

from graphfold.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
