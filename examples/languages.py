"""Which language a line is in: characters make words, words make the line.

    python examples/languages.py english.txt french.txt dutch.txt

Every file is a language, every line of it an example; a fifth of the lines is kept for the result,
and a tenth for --validation, with which settings are chosen. Without files the languages are
invented ones.
"""

import argparse
import random
from pathlib import Path

import torch
from torch import nn

from graphfold import blocks as td


def language_model(alphabet, num_languages, size=32):
    """The block from a line to a score for every language."""
    codes = {character: code for code, character in enumerate(sorted(alphabet), start=1)}
    character = td.InputTransform(lambda c: codes.get(c, 0)) >> td.Scalar("int64")
    character = character >> td.Embedding(1 + len(codes), size)
    word = td.Map(character) >> td.RNN(nn.GRUCell(size, size)) >> td.GetItem(1)
    words = td.InputTransform(str.split) >> td.Map(word)
    line = words >> td.RNN(nn.GRUCell(size, size)) >> td.GetItem(1)
    return line >> nn.Linear(size, num_languages)


def read_lines(path, most):
    """The first lines of a text file that are not blank."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip()][:most]


def invented_lines(rng, count):
    """Lines of a language with syllables, endings and word lengths of its own."""
    consonants, vowels = rng.sample("bcdfghjklmnprstvwz", 9), rng.sample("aeiouy", 4)
    syllables = [rng.choice(consonants) + rng.choice(vowels) for _ in range(12)]
    endings, longest = rng.sample("nrstlmkao", 3), rng.randint(2, 4)

    def word():
        stem = "".join(rng.choice(syllables) for _ in range(rng.randint(1, longest)))
        return stem + rng.choice(endings)

    return [" ".join(word() for _ in range(rng.randint(2, 8))) for _ in range(count)]


def split(rng, languages):
    """(line, number of its language), for learning, for validation and for the test."""
    known, validation, test = [], [], []
    for number, lines in enumerate(languages):
        examples = [(line, number) for line in rng.sample(lines, len(lines))]
        tenth = len(lines) // 10
        validation += examples[:tenth]
        known += examples[tenth : len(lines) - 2 * tenth]
        test += examples[len(lines) - 2 * tenth :]
    return known, validation, test


def train(model, known, epochs, batch_size=50, lr=0.005):
    """Learns from (line, language)."""
    data = td.BlockDataset(model, [line for line, _ in known])
    languages = torch.tensor([language for _, language in known])
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(epochs):
        for numbers in torch.randperm(len(known)).split(batch_size):
            loss = nn.functional.cross_entropy(model(data[numbers.tolist()]), languages[numbers])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def accuracy(model, examples):
    """The share of lines whose language has the highest score."""
    scores = model([line for line, _ in examples])
    wanted = torch.tensor([language for _, language in examples])
    return (scores.argmax(1) == wanted).double().mean().item()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="text files, one for each language")
    parser.add_argument("--lines", type=int, default=1000, help="at most so many of each file")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validation", action="store_true", help="not the lines of the result")
    options = parser.parse_args(argv)
    if len(options.files) == 1:
        parser.error("one file is one language: name at least two")
    torch.manual_seed(options.seed)
    rng = random.Random(options.seed)
    languages = [read_lines(path, options.lines) for path in options.files]
    languages = languages or [invented_lines(rng, options.lines) for _ in range(3)]
    known, validation, test = split(rng, languages)
    model = td.compile(language_model({c for line, _ in known for c in line}, len(languages)))
    train(model, known, options.epochs)
    new, part = (validation, "validation") if options.validation else (test, "test")
    found = accuracy(model, new)
    print(f"{found:.1%} of {len(new)} {part} lines in {len(languages)} languages")
    return found


if __name__ == "__main__":
    main()
