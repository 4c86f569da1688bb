"""Files of many records: WebDataset tars, and TFRecord files of TFDS."""
