"""Images in Parquet files, and datasets of the Hugging Face hub."""
