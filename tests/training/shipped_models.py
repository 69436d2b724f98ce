"""A small training of every shipped model, and of more readouts, heads, targets and optimizers."""

from __future__ import annotations

from pathlib import Path

from graphfold.training.config.folder import config_folder

MODELS = sorted(path.stem for path in (config_folder() / "model").glob("*.yaml"))

#: The data of a model; those that are not here read molecules.
OF_TREES = {
    **dict.fromkeys(
        (
            *("attentive_tree_lstm", "bidirectional_tree_lstm", "binary_tree_lstm"),
            *("block_tree_lstm", "deep_set", "fold_tree_lstm", "mv_rnn", "neighbours", "rntn"),
            *("sequence_tree_lstm", "tree_convolution", "tree_fc", "tree_gru", "tree_rnn"),
        ),
        "data=sst",
    ),
    **dict.fromkeys(
        (
            *("child_sum_tree_lstm", "inside_outside", "relation_tree_lstm"),
            *("sequence_child_sum_tree_lstm", "word_tree_lstm"),
        ),
        "data=ud_english_ewt",
    ),
    "aligned_tree_lstm": "data=sick",
    "bag": "experiment=sick_entailment",
}
#: More of readouts, heads, targets and optimizers; FILE has weights, and values for each bond.
MORE = {
    "a root": ("experiment=listops_tree_lstm", "data.train_size=20", "+data.pool=50"),
    "a sparse table": ("experiment=sst_tree_lstm",),
    "a virtual node": ("data=esol", "model=gine", "model.virtual_node=bond"),
    "a maximum": ("data=esol", "model=gcn",
        "model.readout._target_=graphfold.layers.MaxReadout"),
    "bonds": ("data=smiles", "data.path=FILE", "data.target_columns=[]",
        "data.bond_target_columns=[bonds]", "model=gcn",
        "model.readout._target_=graphfold.layers.BondReadout"),
    "eager rounds": ("data=esol", "model=gine", "model.run=eager",
        "model.cells.0._every_.norm=null"),
    "eager trees": ("data=sst", "model=binary_tree_lstm", "model.run=eager"),
    "missing targets": ("experiment=tox21_best",),
    "pairs": ("experiment=sick_tree_lstm",),
    "words in order": ("experiment=ud_relations",),
    "shapes of molecules": ("data=esol", "model=gin", "data.shapes=static"),
    "shapes of trees": ("data=sst", "model=binary_tree_lstm", "data.shapes=static"),
    "weights": ("data=smiles", "data.path=FILE", "data.target_columns=[y]",
        "data.weight_column=weight", "model=dmpnn"),
}  # fmt: skip
CASES = {
    **{m: (OF_TREES.get(m, "data=esol"), f"model={m}") for m in MODELS if m != "bag"},
    "bag": ("experiment=sick_entailment",),
    **MORE,
}


def small_overrides(case: str, corpora: Path, folder: Path) -> list[str]:
    """The config of a case, with small batches.

    Args:
        case: of `CASES`.
        corpora: where the corpora are.
        folder: an empty folder for files.
    """
    path = folder / "molecules.tsv"
    rows = [f"CCC\t{i}\t{i % 3}\t[0.5, null]" for i in range(20)]
    path.write_text("\n".join(["smiles\ty\tweight\tbonds", *rows, ""]))
    small = ["data.batch_size=4", "data.num_workers=0", "model.hidden_size=8"]
    own = [word.replace("FILE", str(path)) for word in CASES[case]]
    return [*own, *small, f"data.root={corpora}", f"data.cache_dir={folder}"]
