"""Model cards of runs, and uploads to the Hugging Face hub."""
