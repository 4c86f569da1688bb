"""Files of many examples: WebDataset tars, Parquet, the Hub, TFRecords."""
