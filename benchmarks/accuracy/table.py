"""How accurate are the models, on public data? Trains them and tables the metrics.

    python -m benchmarks.accuracy.table molecules --seeds 1 2 3 --only esol freesolv
    python -m benchmarks.accuracy.table trees --only sst

Each run is a `graphfold train` in this process; what came of it goes to docs/TOPIC_accuracy.json,
and the table of all of it into docs/TOPIC.md. A run whose result is there is not made again, so a
broken table goes on where it stopped; `--seeds` without numbers trains nothing and only writes the
table. Further words are overrides of every run: `trainer.accelerator=cpu`. Seconds are processor
time of the whole command, that of the processes that read a file included; examples/s are the
training examples of all epochs by these seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import yaml

from graphfold.cli import main as graphfold
from graphfold.files import write_json, write_text
from graphfold.training.run.trained import TrainedModel

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- figures of benchmarks.accuracy.table -->", "<!-- end of figures -->"

#: What came of each run, with what it is known by (see `key`).
Results = list[dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Args:
        corpus: the name of the data.
        split: the name of the split.
        model: what is trained.
        metrics: of the test part, in the order of the table.
        words: overrides that choose it.
        published: figures of others, each with its source.
        variants: words of which each run has one; the row shows means over all.
    """

    corpus: str
    split: str
    model: str
    metrics: tuple[str, ...]
    words: str
    published: str = ""
    variants: tuple[str, ...] = ("",)


_SETS = tuple(
    f"data.variant=CHEMBL{name}"
    for name in (
        *("1862_Ki", "2034_Ki", "2047_EC50", "204_Ki", "2147_Ki", "214_Ki", "219_Ki", "228_Ki"),
        *("231_Ki", "233_Ki", "235_EC50", "236_Ki", "237_EC50", "238_Ki", "287_Ki", "2971_Ki"),
        *("3979_EC50", "4203_Ki", "4616_EC50", "4792_Ki"),
    )
)
_NETWORK = "model=dmpnn trainer.max_epochs=50"
_MEAN = "model=dmpnn model.readout._target_=graphfold.layers.MeanReadout"
_LONG = f"{_MEAN} optimizer=adam lr_scheduler=cosine data.batch_size=50 trainer.max_epochs=10"

RMSE, ROC_AUC = ("rmse",), ("roc_auc",)
#: Published: MoleculeNet (Wu et al. 2018, table 3), its best network and its best other model;
#: MoleculeACE from the results of CheMeleon (Burns et al. 2025), means over the same 20 sets.
MOLECULES = (
    Row("esol", "random", "dmpnn", RMSE, f"data=esol {_NETWORK}", "MPNN 0.58, XGBoost 0.99"),
    Row(
        *("freesolv", "random", "dmpnn", RMSE, f"data=freesolv {_NETWORK}"),
        published="MPNN 1.15, XGBoost 1.74",
    ),
    Row(
        *("lipophilicity", "random", "lipophilicity_best", RMSE),
        words="experiment=lipophilicity_best",
        published="GC 0.655, XGBoost 0.799",
    ),
    Row(
        *("lipophilicity", "random", "lipophilicity_dmpnn", RMSE),
        words="experiment=lipophilicity_dmpnn",
    ),
    Row("lipophilicity", "random", "dmpnn", RMSE, f"data=lipophilicity {_NETWORK}"),
    Row(
        *("moleculeace", "given", "moleculeace_dmpnn", RMSE, "experiment=moleculeace_dmpnn"),
        published="chemprop 0.853, CheMeleon 0.678, MiniMol 0.712",
        variants=_SETS,
    ),
    Row(
        *("bbbp", "scaffold", "bbbp_fingerprint", ROC_AUC, "experiment=bbbp_fingerprint"),
        published="GC 0.690, kernel SVM 0.729",
    ),
    Row(
        *("hiv", "scaffold", "dmpnn", ROC_AUC, f"data=hiv data.split=scaffold {_LONG}"),
        published="GC 0.763, kernel SVM 0.792",
    ),
    Row(
        *("tox21", "random", "tox21_best", ROC_AUC, "experiment=tox21_best"),
        published="GC 0.829, kernel SVM 0.822",
    ),
)


_SST = ("root_accuracy", "root_binary_accuracy", "node_accuracy")
_NODES, _PEARSON, _ACCURACY = ("node_accuracy",), ("pearson",), ("accuracy",)
#: What stands below each node, without its order: to compare trees with.
_BAG = "model=bag model.cells.0._every_.subtree=true"
_PAIR_CLASSES = "model.head._target_=graphfold.layers.PairClassificationHead"
_ENTAILMENT = f"{_PAIR_CLASSES} model.head.target=entailment monitor=val/accuracy"
_CHAIN = "data.nodes=tokens model=child_sum_tree_lstm model.hidden_size=100 trainer.max_epochs=6"

#: Published: RNTN by Socher et al. (2013), without pre-trained vectors; with those of GloVe, Tai et
#: al. (2015).
TREES = (
    Row("sst", "given", "sst_best", _SST, "experiment=sst_best", "RNTN 45.7, 85.4, 80.7 %"),
    Row("sst", "given", "sst_blocks", _SST, "experiment=sst_blocks"),
    Row(
        "sst", "given", "sst_tree_lstm", _SST, "experiment=sst_tree_lstm", "with GloVe 51.0, 88.0 %"
    ),
    Row(
        *("sst", "given", "bag", _SST),
        words=f"experiment=sst_tree_lstm {_BAG} model.readout._target_=auto",
        published="naive Bayes 41.0, 81.8, 67.2 %",
    ),
    Row("ptb_sample", "random", "ptb_labels", _NODES, "experiment=ptb_labels"),
    Row("sick", "given", "sick_best", _PEARSON, "experiment=sick_best", "with GloVe 0.868"),
    Row("sick", "given", "sick_tree_lstm", _PEARSON, "experiment=sick_tree_lstm"),
    Row("sick", "given", "bag", _PEARSON, f"experiment=sick_best {_BAG}"),
    Row("sick", "given", "sick_entailment", _ACCURACY, "experiment=sick_entailment"),
    Row("sick", "given", "aligned_tree_lstm", _ACCURACY, f"experiment=sick_best {_ENTAILMENT}"),
    Row("listops", "test_d20s", "listops_best", _ACCURACY, "experiment=listops_best"),
    Row(
        *("listops", "test_d20s", "LSTM over tokens", _ACCURACY),
        words=f"experiment=listops_best {_CHAIN}",
    ),
    Row("ud_english_ewt", "given", "ud_upos", _NODES, "experiment=ud_upos"),
    Row("ud_english_ewt", "given", "ud_mask", _NODES, "experiment=ud_mask"),
    Row("ud_english_ewt", "given", "ud_relations", _NODES, "experiment=ud_relations"),
    Row(
        *("ud_french_sequoia", "given", "ud_mask", _NODES),
        words="experiment=ud_mask data=ud_french_sequoia",
    ),
    Row(
        *("ud_french_sequoia", "given", "ud_relations", _NODES),
        words="experiment=ud_relations data=ud_french_sequoia",
    ),
)

TOPICS = {"molecules": MOLECULES, "trees": TREES}

_NAMES = {
    "rmse": "RMSE",
    "roc_auc": "ROC-AUC",
    "pearson": "Pearson",
    "accuracy": "accuracy",
    "root_accuracy": "roots",
    "root_binary_accuracy": "roots, two classes",
    "node_accuracy": "nodes",
    "macro_f1": "macro F1",
}


def main(words: Sequence[str] | None = None) -> None:
    """Trains what is asked for and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("topic", choices=TOPICS)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--only", nargs="+", help="names of corpora or models; all by default")
    parser.add_argument("--results", type=Path, help="docs/TOPIC_accuracy.json by default")
    parser.add_argument("--page", type=Path, help="docs/TOPIC.md by default")
    args, overrides = parser.parse_known_args(words)
    path = args.results or DOCS / f"{args.topic}_accuracy.json"
    results, rows = read_results(path), TOPICS[args.topic]
    for row in rows:
        if args.only and not {row.corpus, row.model} & set(args.only):
            continue
        for seed in args.seeds:
            for variant in row.variants:
                if find(results, row, seed, variant) is None:
                    results.append(train(row, seed, variant, overrides))
                    write_json(path, {"runs": results})
    write_page(args.page or DOCS / f"{args.topic}.md", table(rows, results))


def read_results(path: Path) -> Results:
    """What earlier calls have measured."""
    if not path.is_file():
        return []
    results: Results = json.loads(path.read_text(encoding="utf-8"))["runs"]
    return results


def train(row: Row, seed: int, variant: str, overrides: Sequence[str]) -> dict[str, Any]:
    """What came of one run, whose folder is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*row.words.split(), *variant.split(), *overrides, f"seed={seed}"]
        start = cpu_seconds()
        if graphfold(["train", *words, f"hydra.run.dir={folder}", "logger=none"]):
            raise SystemExit(f"graphfold train {' '.join(words)} failed.")
        seconds = cpu_seconds() - start
        metrics = json.loads((Path(folder) / "metrics.json").read_text(encoding="utf-8"))
        trained = TrainedModel.load(Path(folder) / "checkpoints" / "best.ckpt")
        return {
            **key(row, seed, variant),
            "values": {name: metrics[f"test/{name}"] for name in row.metrics},
            "seconds": round(seconds),
            "examples": examples(Path(folder)),
            "parameters": sum(weight.numel() for weight in trained.model.parameters()),
        }


def examples(folder: Path) -> int:
    """How many training examples all steps of a run saw, but for short last batches."""
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    tables = [path.read_text(encoding="utf-8").splitlines() for path in folder.rglob("metrics.csv")]
    steps = [dict(zip(lines[0].split(","), lines[-1].split(","), strict=True)) for lines in tables]
    batch_size: int = yaml.safe_load(config)["data"]["batch_size"]
    return sum(int(row["step"]) for row in steps) * batch_size


def cpu_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def key(row: Row, seed: int, variant: str) -> dict[str, Any]:
    """What a run is known by."""
    return {"words": f"{row.words} {variant}".strip(), "split": row.split, "seed": seed}


def find(results: Results, row: Row, seed: int, variant: str) -> dict[str, Any] | None:
    """The result of a run, if it is there."""
    wanted = key(row, seed, variant).items()
    return next((result for result in results if wanted <= result.items()), None)


def table(rows: Sequence[Row], results: Results) -> str:
    """All rows as markdown."""
    lines = [
        "| data | split | model | test | runs | seconds | examples/s | parameters | published |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(cells(row, results))} |" for row in rows]
    return "\n".join(lines)


def cells(row: Row, results: Results) -> list[str]:
    """The texts of one row: of the means over variants, mean and deviation over seeds."""
    seeds = sorted({result["seed"] for result in results})
    by_seed = [[find(results, row, seed, variant) for variant in row.variants] for seed in seeds]
    whole = [[r for r in runs if r is not None] for runs in by_seed if None not in runs]
    first = [row.corpus, row.split, f"`{row.model}`"]
    if not whole:
        return [*first, "not measured", "", "", "", "", row.published]
    runs = [run for runs in whole for run in runs]
    seconds = [run["seconds"] for run in runs if run["seconds"] is not None]
    timed = [run for run in runs if run.get("examples") and run["seconds"]]
    rates = [run["examples"] / run["seconds"] for run in timed]
    parameters = max(run["parameters"] for run in runs)
    return [
        *first,
        "; ".join(_figure(name, whole) for name in row.metrics),
        str(len(runs)),
        f"{mean(seconds):.0f}" if seconds else "",
        f"{mean(rates):,.0f}" if rates else "",
        f"{parameters:,}" if parameters else "",
        row.published,
    ]


def _figure(metric: str, by_seed: Sequence[Results]) -> str:
    """Mean and deviation over seeds of the means over variants."""
    values = [mean(run["values"][metric] for run in runs) for runs in by_seed]
    deviation = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
    return f"{_NAMES[metric]} {mean(values):.3f}{deviation}"


def write_page(path: Path, text: str) -> None:
    """Puts the table between the marks of the page."""
    page = path.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{path} lacks the lines '{BEGIN}' and '{END}'. Put them back.")
    write_text(path, f"{before}{BEGIN}\n{text}\n{END}{after}")


if __name__ == "__main__":
    main()
