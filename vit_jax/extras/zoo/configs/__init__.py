"""config.json of timm and Hugging Face."""
