"""Every key of a config: for docs/config.md, --help and misspelt flags."""
