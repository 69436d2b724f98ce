"""Settings under which an option of data, split or training is not read, and so is refused.

A row for each of these options: the settings under which nothing would read it and a part of the
message, or in words why it is read whatever the others are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from effects import walk

from graphfold.datasets.corpora.corpus_table import CORPORA
from graphfold.options import parameters
from graphfold.registry import ADAPTERS


@dataclass(frozen=True)
class Unread:
    """Settings under which an option is not read.

    Args:
        message: a pattern of the refusal.
        settings: arguments of `DataModule`; `{lab}` in a path stands for the folder of the lab.
        words: overrides of a training of a base of the lab, in place of the settings.
    """

    message: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()


def options() -> list[str]:
    """The ids of all options of data, split and training."""
    return sorted(filter(_is_here, walk.options()))


def _is_here(name: str) -> bool:
    section = name.rpartition(".")[0]
    groups = ("trainer", "optimizer", "lr_scheduler", "callbacks", "logger")
    return (
        section in ("", "data", "loss", "calibration", *ADAPTERS.paths, *CORPORA)
        or section.partition("/")[0] in groups
    )


def _ids(section: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{section}.{name}" for name in names)


def _corpora() -> dict[str, Unread]:
    """Options of the makers of corpora: none is read where `data.path` names other files."""
    rows = {}
    for name in walk.options():
        corpus, _, option = name.partition(".")
        if corpus in CORPORA and CORPORA[corpus].maker is not None:
            settings = {"corpus": corpus, "path": "{lab}/trees.txt", option: _other(corpus, option)}
            rows[name] = Unread(rf"data\.{option}=.* is not read with data\.path", settings)
    return rows


def _other(corpus: str, option: str) -> Any:
    module, _, function = str(CORPORA[corpus].maker).partition(":")
    default = parameters(getattr(walk.import_module(module), function))[option].default
    return 7 if default is None else default / 2 if isinstance(default, float) else default + 1


SMILES = {"adapter": "smiles", "path": "{lab}/molecules.csv", "target_columns": ["y"]}
TREES = {"adapter": "brackets", "path": "{lab}/trees.txt"}
WORDS = {"adapter": "conllu", "path": "{lab}/words.conllu"}
TABLE = {**SMILES, "adapter": "table", "records": "smiles", "record_column": "smiles"}
PARTS = dict.fromkeys(("train", "val", "test"), "{lab}/molecules.csv")
NO_VAL = "data.fractions=[0.8,0,0.2]"

#: Option -> why it is read whatever the others are.
READ: dict[str, str] = {
    **dict.fromkeys(("data.corpus", "data.path", "data.on_error"), "it says what is read, or how"),
    "data.features_from": "the records of every adapter have them",
    **dict.fromkeys(
        ("data.root", "data.cache_dir", "data.num_workers"), "of the machine: no number changes"
    ),
    **dict.fromkeys(
        (
            "data.seed",
            "data.batch_size",
            "data.max_nodes",
            "data.policy",
            "data.share",
            "data.shapes",
        ),
        "all data are served in batches",
    ),
    **dict.fromkeys(
        (
            *_ids("smiles", "target_columns", "task", "weight_column", "descriptors", "features"),
            *_ids("smiles", "explicit_hydrogens", "directed_bonds", "fragments", "smiles_column"),
            *_ids("smiles", "salts", "standardize", "reaction"),
        ),
        "each molecule is read by it",
    ),
    **dict.fromkeys(
        _ids("table", "records", "options", "record_column", "target_columns", "task")
        + _ids("table", "weight_column"),
        "each row is read by it",
    ),
    **dict.fromkeys(
        _ids("brackets", "binarize", "collapse_unary", "sequence"), "each tree is changed by it"
    ),
    **dict.fromkeys(
        _ids("conllu", "features", "position", "target", "tree"), "each sentence is read by it"
    ),
    **dict.fromkeys(
        ("graphs.schema", "listops.check_answers", "listops.nodes", "pairs.across"),
        "each record is read by it",
    ),
    **dict.fromkeys(
        ("name", "needs", "seed", "deterministic", "threads", "metrics", "ensemble"),
        "of every training",
    ),
    **dict.fromkeys(
        ("resume", "init_from", "freeze", "calibration.method"),
        "what does not fit the model or the data is refused by its own check",
    ),
    **dict.fromkeys(
        _ids("trainer/default", "accelerator", "devices", "precision", "max_epochs")
        + _ids("trainer/default", "accumulate_grad_batches", "gradient_clip_val")
        + _ids("trainer/default", "limit_train_batches")
        + _ids("lr_scheduler/constant", "factor")
        + _ids("lr_scheduler/cosine", "T_max")
        + _ids("lr_scheduler/step", "gamma", "step_size")
        + ("callbacks/average.average.decay", "callbacks/default.early_stopping"),
        "of every epoch",
    ),
}

#: Option -> where it is not read.
UNREAD: dict[str, Unread] = {
    "data.adapter": Unread("read by the smiles adapter", {"corpus": "esol", "adapter": "brackets"}),
    "data.variant": Unread("is not read with data.adapter=smiles", {**SMILES, "variant": "a"}),
    "data.split": Unread(
        r"data\.path says .* data\.split=random does not read it",
        {**SMILES, "path": PARTS, "split": "random"},
    ),
    "data.fractions": Unread(
        "is not read with data.split=given and a val part",
        {**SMILES, "path": PARTS, "fractions": [0.6, 0.2, 0.2]},
    ),
    "data.num_folds": Unread("not read with data.split=random", {**SMILES, "num_folds": 3}),
    "data.fold": Unread(
        "not read with data.split=scaffold", {**SMILES, "split": "scaffold", "fold": 1}
    ),
    "data.num_repeats": Unread(
        "not read with data.split=kfold", {**SMILES, "split": "kfold", "num_repeats": 2}
    ),
    "data.groups": Unread(
        "not read with data.split=given", {**SMILES, "path": PARTS, "groups": "molecule"}
    ),
    "data.stratify_by": Unread("not read with data.split=random", {**SMILES, "stratify_by": "y"}),
    **{
        f"data.{name}": Unread("not read with the adapter smiles", {**SMILES, name: value})
        for name, value in (("min_count", 2), ("max_vocabulary", 9), ("lowercase", True))
    },
    **{
        f"data.{name}": Unread("words", {**SMILES, name: value})
        for name, value in (("vectors", "v.txt"), ("characters", True))
    },
    **{
        f"smiles.{name}": Unread(f"{name}=.* is not read with", {**SMILES, **given})
        for name, given in (
            ("morgan_radius", {"morgan_radius": 3, "descriptors": ["torsions"]}),
            ("fingerprint_size", {"fingerprint_size": 64, "descriptors": ["rdkit2d"]}),
        )
    },
    "smiles.split_column": Unread(
        "data.split_column", {**SMILES, "split_column": "active", "split": "scaffold"}
    ),
    "table.split_column": Unread(
        "split_column=active is not read with a file for each part",
        {**TABLE, "path": PARTS, "split_column": "active"},
    ),
    **{
        f"smiles.{name}": Unread("cannot be read together", {**SMILES, name: ["z"]})
        for name in ("atom_target_columns", "bond_target_columns")
    },
    **{
        f"{data['adapter']}.{name}": Unread("does not fit", {**data, name: value})
        for data in (SMILES, TABLE)
        for name, value in (("num_classes", 3), ("class_names", {"y": ["a", "b"]}))
    },
    "smiles.positive": Unread("is for classes", {**SMILES, "positive": 0}),
    "smiles.units": Unread(
        "data.units names 'Y', which is no target", {**SMILES, "units": {"Y": "m"}}
    ),
    "smiles.bounded_targets": Unread(
        "is for numbers", {**SMILES, "task": "classification", "bounded_targets": True}
    ),
    "brackets.num_classes": Unread(
        "Leave num_classes", {**TREES, "num_classes": 5, "classes": {"a": [0], "b": [1]}}
    ),
    "brackets.classes": Unread(
        "Leave num_classes and label_names out",
        {**TREES, "label_names": ["0", "1"], "classes": {"a": [0], "b": [1]}},
    ),
    "brackets.label_names": Unread(
        "label_names names targets", {**TREES, "label_names": ["0"], "labels": "feature"}
    ),
    "brackets.labels": Unread(
        "labels=feature is not read with num_classes",
        {**TREES, "num_classes": 5, "labels": "feature"},
    ),
    "brackets.branching": Unread(
        "branching=left is not read with binarize=false", {**TREES, "branching": "left"}
    ),
    **{
        f"brackets.{name}": Unread("num_classes asks for", {**TREES, "num_classes": 5, name: True})
        for name in ("remove_traces", "strip_functions")
    },
    "conllu.labels": Unread("labels names the classes of upos", {**WORDS, "labels": ["NOUN"]}),
    "conllu.subtypes": Unread(
        "subtypes=false is not read with tree=chain", {**WORDS, "tree": "chain", "subtypes": False}
    ),
    "conllu.relation_column": Unread(
        "give away", {**WORDS, "target": "deprel", "relation_column": "deps"}
    ),
    **_corpora(),
    "monitor": Unread(
        "monitor=val/rmse is not read with no validation part",
        words=("molecules", NO_VAL, "monitor=val/rmse"),
    ),
    "trainer/default.limit_val_batches": Unread(
        "limit_val_batches=2 is not read with no validation part",
        words=("molecules", NO_VAL, "trainer.limit_val_batches=2"),
    ),
    **dict.fromkeys(
        _ids("callbacks/early_stopping.early_stopping", "patience", "min_delta"),
        Unread(
            "EarlyStopping waits for metrics of the validation part",
            words=("molecules", NO_VAL, "callbacks=early_stopping"),
        ),
    ),
    **dict.fromkeys(
        _ids("lr_scheduler/plateau", "factor", "patience"),
        Unread(
            "ReduceLROnPlateau waits for metrics of the validation part",
            words=("molecules", NO_VAL, "lr_scheduler=plateau"),
        ),
    ),
    "loss.reduction": Unread(
        "loss.reduction=per_node is not read with a target of graphs",
        words=("molecules", "loss.reduction=per_node"),
    ),
    "calibration.level": Unread(
        "calibration.level=0.8 is not read with calibration.method=auto, without intervals",
        words=("classes", "calibration.level=0.8"),
    ),
}

# Each optimizer and each logger reads the options that its file has.
READ |= dict.fromkeys(
    (name for name in options() if name.startswith(("optimizer/", "logger/"))),
    "arguments of a class, which refuses what it does not have",
)
