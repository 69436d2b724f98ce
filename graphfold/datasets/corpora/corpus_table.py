"""The table of named corpora. Each is a folder under `data.root`, or made on the spot.

A folder with files of the same names loads in the same way. No corpus is downloaded:
where its files are absent, the error says where they are to be had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphfold.datasets.corpora.corpus import PARTS, Corpus, CorpusFile
from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.errors import ConfigError, did_you_mean


def find_corpus(name: str) -> Corpus:
    """The corpus called `name`; raises ConfigError with the nearest name if there is none."""
    if name not in CORPORA:
        raise ConfigError(
            f"there is no corpus '{name}'.{did_you_mean(name, CORPORA)} Use one of "
            f"{', '.join(CORPORA)}; or name an adapter and set data.path.",
            corpus=name,
        )
    return CORPORA[name]


def _github(repository: str, commit: str, place: str) -> str:
    return f"{place} of https://github.com/{repository} at commit {commit}"


def _parts(*names: str) -> tuple[CorpusFile, ...]:
    """The files for train, val and test."""
    return tuple(CorpusFile(name, part) for name, part in zip(names, PARTS, strict=True))


def _measured(**units: str) -> AdapterSpec:
    """Molecules with the values of columns, each with its unit; "" is none."""
    return _molecules([*units], "regression", units={k: unit for k, unit in units.items() if unit})


def _molecules(targets: list[str], task: str, **options: Any) -> AdapterSpec:
    defaults = {"smiles_column": "smiles", "target_columns": targets, "task": task}
    return AdapterSpec("smiles", defaults | options)


def _table(file: str) -> tuple[CorpusFile, ...]:
    return (CorpusFile(file),)


_ATTENTIVE = ("OpenDrugAI/AttentiveFP", "dda6708342ffe255ded73c459ad64214a4615542")
_RECEPTORS = ("AR", "AR-LBD", "AhR", "Aromatase", "ER", "ER-LBD", "PPAR-gamma")
_STRESSES = ("ARE", "ATAD5", "HSE", "MMP", "p53")
_TOX21 = [f"NR-{name}" for name in _RECEPTORS] + [f"SR-{name}" for name in _STRESSES]
_EXCITATIONS = ("E1", "E2", "f1", "f2")
_QM8 = [f"{name}-{method}" for method in ("CC2", "PBE0", "CAM") for name in _EXCITATIONS]
_QM9 = {
    "hlg": ("band_gap", "hartree"),
    "hc": ("heat_capacity", "cal/(mol K)"),
    "ip": ("isotropic_polarizability", "bohr^3"),
    "potential": ("internal_energy_298K", "hartree"),
}
_MOLECULE_ACE = (
    *("CHEMBL1862_Ki", "CHEMBL2034_Ki", "CHEMBL2047_EC50", "CHEMBL204_Ki", "CHEMBL2147_Ki"),
    *("CHEMBL214_Ki", "CHEMBL219_Ki", "CHEMBL228_Ki", "CHEMBL231_Ki", "CHEMBL233_Ki"),
    *("CHEMBL235_EC50", "CHEMBL236_Ki", "CHEMBL237_EC50", "CHEMBL238_Ki", "CHEMBL287_Ki"),
    *("CHEMBL2971_Ki", "CHEMBL3979_EC50", "CHEMBL4203_Ki", "CHEMBL4616_EC50", "CHEMBL4792_Ki"),
)

_CORPORA = (
    Corpus(
        "sst",
        "Stanford Sentiment Treebank: film reviews, sentiment 0 to 4 of every phrase",
        AdapterSpec("brackets", {"num_classes": 5, "binarize": True}),
        _parts("train.txt", "dev.txt", "test.txt"),
        _github(
            "Ant-Bru/pyTreeLearn", "a2b8ae4926a446789c54721dd66ae5d6f497ec46", "the folder data/sst"
        ),
    ),
    Corpus(
        "ptb_sample",
        "Penn Treebank, wsj_0001 to wsj_0199: constituency trees of newspaper text",
        AdapterSpec("brackets"),
        _table("wsj_0001-0199.mrg"),
        _github(
            "nltk/nltk_data",
            "5db857e6f7df11eabb5e5665836db9ec8df07e28",
            "the files of treebank/combined, joined in order, in packages/corpora/treebank.zip",
        ),
    ),
    Corpus(
        "sick",
        "SICK: pairs of sentences, relatedness 1 to 5 and entailment",
        AdapterSpec("pairs"),
        _parts("parsed/train", "parsed/dev", "parsed/test"),
        _github(
            "castorini/MP-CNN-Torch",
            "68cb72f677062113f54071fc9b8c05e7b5ff6152",
            "the folder data/sick",
        ),
    ),
    Corpus(
        "listops",
        "ListOps, published test sets: nested list operations, the answer is a digit",
        AdapterSpec("listops"),
        (
            CorpusFile("test_d20s.tsv.gz", "test", "d20s"),
            CorpusFile("test_d20a.tsv.gz", "test", "d20a"),
        ),
        _github(
            "nyu-mll/spinn",
            "1e2805c7b0b327db5d9d78e9b7792ad31678edfa",
            "the folder python/spinn/data/listops",
        ),
    ),
    Corpus(
        "listops_generated",
        "ListOps drawn at random with the published distribution: needs no file",
        AdapterSpec("listops"),
        maker="graphfold.datasets.corpora.corpus_makers:make_listops",
    ),
    Corpus(
        "listops_d20s",
        "ListOps drawn at random to train on, and the published test_d20s to be scored by",
        AdapterSpec("listops"),
        maker="graphfold.datasets.corpora.corpus_makers:make_published_listops",
    ),
    *(
        Corpus(
            f"ud_{folder}",
            f"Universal Dependencies {title}: dependency trees",
            AdapterSpec("conllu"),
            tuple(CorpusFile(f"{stem}-ud-{file}", part) for file, part in files.items()),
            _github(f"UniversalDependencies/{repository}", commit, f"the files {stem}-ud-*.conllu"),
        )
        for folder, title, stem, repository, commit, files in (
            (
                "english_ewt",
                "English EWT 2.16",
                "en_ewt",
                "UD_English-EWT",
                "15d613d8447b3478787d4c278730a1e48a945efb",
                {"train.conllu.gz": "train", "dev.conllu": "val", "test.conllu": "test"},
            ),
            (
                "french_sequoia",
                "French Sequoia",
                "fr_sequoia",
                "UD_French-Sequoia",
                "f5b049600c89d2cf15ebbec860f75d703884d32b",
                {"train.conllu.gz": "train", "dev.conllu": "val", "test.conllu": "test"},
            ),
            (
                "chinese_gsdsimp",
                "Chinese GSDSimp, dev and test",
                "zh_gsdsimp",
                "UD_Chinese-GSDSimp",
                "eb3aed31ebb170897405ee5cd1db83a1a0b11864",
                {"dev.conllu": "val", "test.conllu": "test"},
            ),
        )
    ),
    Corpus(
        "esol",
        "ESOL: solubility in water, log mol/L",
        _measured(**{"measured log solubility in mols per litre": "log mol/L"}),
        _table("delaney-processed.csv"),
        _github(
            "deepchem/deepchem",
            "fbe3b911a94a6eb8c84c1a9e7ac67a472c49ea80",
            "datasets/delaney-processed.csv",
        ),
    ),
    Corpus(
        "freesolv",
        "FreeSolv: hydration free energy, kcal/mol",
        _measured(expt="kcal/mol"),
        _table("SAMPL.csv"),
        _github(*_ATTENTIVE, "data/SAMPL.csv"),
    ),
    Corpus(
        "lipophilicity",
        "Lipophilicity: octanol/water logD at pH 7.4",
        _measured(exp="logD"),
        _table("Lipophilicity.csv"),
        _github(*_ATTENTIVE, "data/Lipophilicity.csv"),
    ),
    Corpus(
        "bbbp",
        "BBBP: penetration of the blood-brain barrier, yes or no",
        _molecules(["p_np"], "classification", smiles_column="SMILES"),
        _table("BBBP.csv"),
        _github(
            "not-a-slacker/blood-brain-barrier-permeability-prediction",
            "4abac437481613f4689fc08876c24c9239275482",
            "data/BBBP.csv",
        ),
    ),
    Corpus(
        "tox21",
        "Tox21: toxicity in twelve assays, yes or no",
        _molecules(_TOX21, "classification"),
        _table("tox21.csv"),
        _github(*_ATTENTIVE, "data/tox21.csv"),
    ),
    Corpus(
        "hiv",
        "HIV: inhibition of HIV replication, yes or no",
        _molecules(["HIV_active"], "classification"),
        _table("HIV.csv.gz"),
        _github("chemprop/chemprop", "f814b63ee66d574d9357366bf6c08c11a1b24478", "data/HIV.csv.gz"),
    ),
    Corpus(
        "qm7",
        "QM7: atomisation energy, kcal/mol",
        _measured(qm7="kcal/mol"),
        _table("qm7.csv"),
        _github(
            "ljatynu/CPBayesMPP", "75da8efc4e0c89c6bab46f38192aa242f50892a3", "dataset/qm7.csv"
        ),
    ),
    Corpus(
        "qm8",
        "QM8: energies and oscillator strengths of two excitations, by three methods",
        _measured(**{name: "hartree" if name[0] == "E" else "" for name in _QM8}),
        _table("qm8.csv.gz"),
        _github("chemprop/chemprop", "3f2b73372a8968f0f73b2fb279a5780cae918d58", "data/qm8.csv.gz"),
    ),
    Corpus(
        "qm9",
        "QM9: HOMO-LUMO gap, heat capacity, polarizability or internal energy (data.variant)",
        _molecules([], "regression"),
        tuple(
            CorpusFile(f"qm9_{name}.csv.gz", None, name, _measured(**{column: unit}).options)
            for name, (column, unit) in _QM9.items()
        ),
        _github(
            "KRICT-DATA/EGCN",
            "7122542e074938f5c6bd3aea0ef03fc7acf76eec",
            "the files data/qm9_*.csv",
        ),
    ),
    Corpus(
        "moleculeace",
        "MoleculeACE: potency at a protein with activity cliffs, -log10(mol/L) (data.variant)",
        _molecules(
            ["y [pEC50/pKi]"],
            "regression",
            units={"y [pEC50/pKi]": "-log10(mol/L)"},
            split_column="split",
        ),
        tuple(CorpusFile(f"{name}.csv", None, name) for name in _MOLECULE_ACE),
        _github(
            "molML/MoleculeACE",
            "7e6de0bd2968c56589c580f2a397f01c531ede26",
            "the folder MoleculeACE/Data/benchmark_data",
        ),
    ),
    Corpus(
        "zinc250k_subset",
        "ZINC-250k, its validation and test parts: drug-like molecules with computed properties",
        _measured(logP="logP", qed="", SAS=""),
        (CorpusFile("valid.csv.gz", "val"), CorpusFile("test.csv.gz", "test")),
        _github(
            "raulorteg/molminer",
            "9f2e43b6f8645f5da001d1710949767c245860c0",
            "the files data/zinc/{valid,test}.csv",
        ),
    ),
    Corpus(
        "chembl",
        "CHEMBL2321810: measured pIC50 of about 1,000 molecules, out of rdkit's own files",
        _measured(pIC50="-log10(mol/L)"),
        maker="graphfold.datasets.corpora.corpus_makers:make_chembl",
    ),
)

#: All corpora by name.
CORPORA: Mapping[str, Corpus] = {corpus.name: corpus for corpus in _CORPORA}
