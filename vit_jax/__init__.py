"""Vision Transformer in JAX: "An Image is Worth 16x16 Words", arXiv:2010.11929.

Pre-training, fine-tuning and evaluation of the paper's models. Start with
`python main.py --help`; CONTRIBUTING.md says where things are.
"""

__version__ = '0.1.0'
