"""Predicts a folder of Parquet files with Dask: python predict_on_dask.py RUN NEW OUTPUT."""

import sys

import dask.dataframe as dd

from graphfold import TablePredictor

if __name__ == "__main__":
    run, new, output = sys.argv[1:]
    table, predictor = dd.read_parquet(new), TablePredictor(run)
    predicted = table.map_partitions(predictor, meta=predictor(table._meta))
    predicted.to_parquet(output, compute_kwargs={"scheduler": "processes"})
