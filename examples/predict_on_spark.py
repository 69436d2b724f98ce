"""Predicts a folder of Parquet files with Spark: python predict_on_spark.py RUN NEW OUTPUT."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from graphfold import TablePredictor

run, new, output = sys.argv[1:]
table = SparkSession.builder.getOrCreate().read.parquet(new)
predictor = TablePredictor(run)
schema = from_arrow_schema(predictor.schema(to_arrow_schema(table.schema)))
table.mapInArrow(predictor.stream, schema).write.parquet(output)
