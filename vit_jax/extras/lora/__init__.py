"""LoRA, low-rank adapters of frozen kernels: `lora.rank`, docs/lora.md."""
