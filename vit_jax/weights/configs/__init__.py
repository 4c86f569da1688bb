"""config.json files of timm, Hugging Face and this project."""
