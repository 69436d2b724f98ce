#!/bin/sh
# Trains, evaluates and applies a tree model and a molecule model on data that needs no download.
# Everything goes to demo/, which is made anew; it stops at the first failure.
set -eu
cd "$(dirname "$0")/.."
out=demo
tree=$out/listops_tree_lstm
molecule=$out/chembl_gcn

run() {
    printf '\n$ graphfold %s\n' "$*"
    .venv/bin/graphfold "$@"
}

rm -rf "$out"
mkdir "$out"

# Three expressions, answers included: 9, 3 + 4 and the median of 1, 5 and 8.
cat >"$out/expressions.tsv" <<'END'
9	( ( ( ( [MAX 2 ) 9 ) 4 ) ] )
7	( ( ( [SM 3 ) 4 ) ] )
5	( ( ( ( [MED 1 ) 5 ) 8 ) ] )
END
# Two drugs, and one SMILES whose ring is never closed: its row comes back with the reason.
cat >"$out/molecules.csv" <<'END'
name,smiles
aspirin,CC(=O)Oc1ccccc1C(=O)O
broken,c1ccccc
caffeine,Cn1cnc2c1c(=O)n(C)c(=O)n2C
END

run train "hydra.run.dir=$tree"
run evaluate "$tree"
run predict "$tree" "$out/expressions.tsv" --output "$out/expressions.jsonl"
cat "$out/expressions.jsonl"

run train experiment=chembl_gcn "hydra.run.dir=$molecule"
run evaluate "$molecule"
run predict "$molecule" "$out/molecules.csv" --output "$out/molecules_pred.csv"
cat "$out/molecules_pred.csv"

printf '\nThe results are in %s/:\n' "$out"
printf '  %-38s %s\n' \
    "$tree/report.html" 'curves, metrics and the worst examples of the tree model' \
    "$tree/metrics.json" 'its metrics; checkpoints/best.ckpt beside it is the model' \
    "$out/expressions.jsonl" "its predictions for $out/expressions.tsv" \
    "$molecule/report.html" 'the same of the molecule model' \
    "$molecule/metrics.json" 'its metrics' \
    "$out/molecules_pred.csv" "its predictions for $out/molecules.csv"
