"""docs/blocks.md: its blocks run in order and print what they promise; its names exist."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

from graphfold import blocks as td

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "blocks.md").read_text(encoding="utf-8")

#: The public names of TensorFlow Fold, those of `td` and of `td.Compiler`.
FOLD = """
Compiler Tensor Scalar Vector InputTransform SerializedMessageToTree OneHot OneHotFromList Optional
Composition Pipe Record AllOf FromTensor Function Concat Zeros Map Fold RNN Reduce Sum Min Max Mean
Broadcast Zip ZipWith NGrams Nth GetItem Length Slice ForwardDeclaration OneOf Metric Identity Void
FC Embedding FractalNet ScopedLayer TensorType VoidType PyObjectType TupleType SequenceType
BroadcastSequenceType Plan TrainPlan EvalPlan InferPlan define_plan_flags plan_default_params
convert_to_block convert_to_type canonicalize_type EdibleIterator group_by_batches epochs parse_spec
build_optimizer_from_params create_variable_scope IOBase Block Layer ResultType
build_learning_rate_decay_from_params get_local_arguments TensorToTensorLayer
"""


def run(code: str, namespace: dict[str, object]) -> str:
    """The output of a block of the page."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "blocks.md", "exec"), namespace)
    return printed.getvalue()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FunctionCell is not compiled")  # PairwiseDistance
def test_the_blocks_run_and_print_what_they_promise():
    fences = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    namespace: dict[str, object] = {"__name__": "blocks_page"}
    code, printed, count = "", "", 0
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for language, text in fences:
            if language == "text":  # what was printed, in lines as long as the page is wide
                assert text.split() == printed.split()
                count += len(re.findall(r"^print\(", code, re.MULTILINE))
            elif language == "python":
                code = text
                printed = run(text, namespace)
                promised = re.findall(r"^print\(.*\)  # (.*)$", text, re.MULTILINE)
                assert printed.splitlines() == promised or not promised
                count += len(promised)
    assert count == len(re.findall(r"^print\(", PAGE, re.MULTILINE)) > 25


def section(title: str) -> str:
    """The text under a heading."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of the tables in a text, without their heads."""
    lines = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines]


def test_every_name_of_fold_is_in_the_table_and_what_it_maps_to_exists():
    table = rows(section("Names of TensorFlow Fold"))[2:]
    named = [name for row in table for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(named) == sorted(FOLD.split())
    ours = {name for row in table for name in re.findall(r"`td\.(\w+)", row[1])}
    assert ours
    assert [name for name in ours if not hasattr(td, name)] == []


def test_names_said_to_be_the_same_are_there_and_others_are_not():
    for row in rows(section("Names of TensorFlow Fold"))[2:]:
        names = re.findall(r"`(\w+)`", row[0])
        assert (row[1] == "the same") <= all(hasattr(td, name) for name in names), names
        assert (row[1].startswith("none")) <= (not any(hasattr(td, name) for name in names)), names


def test_all_public_names_are_explained():
    known = set(re.findall(r"\w+", PAGE))
    assert [name for name in td.__all__ if name not in known] == []


def test_every_example_is_listed():
    """Examples without blocks are on other pages."""
    pages = section("Examples") + "".join(
        (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        for name in ("molecules", "predict_large_data", "serving", "trees")
    )
    listed = set(re.findall(r"\]\(\.\./examples/(\w+)\.py\)", pages))
    assert sorted(listed) == sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
