"""Options without a row. The list shrinks, and goes when it is empty."""

NOT_YET = {
    "train --experimental-rerun",
    "train --hydra-help",
    "train -cn",
    "train -cp",
    "train -i",
    "train -p",
    "train -r",
    "train -sc",
    "tune --experimental-rerun",
    "tune --hydra-help",
    "tune -cn",
    "tune -cp",
    "tune -i",
    "tune -p",
    "tune -r",
    "tune -sc",
}
