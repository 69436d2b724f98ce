"""Predicts a folder of Parquet files with Ray Data: python predict_on_ray.py RUN NEW OUTPUT."""

import sys

import ray

from graphfold import TablePredictor

run, new, output = sys.argv[1:]
predicted = ray.data.read_parquet(new).map_batches(
    TablePredictor(run), batch_format="pyarrow", batch_size=1024
)
predicted.write_parquet(output)
