"""The machine that every test sees: eight CPU devices.

This file must not import vit_jax: the shapes in its annotations are checked by
an import hook that pytest installs after it has read this file.
"""

import os

# Before JAX starts; a GPU or TPU in the machine is not what the tests measure.
os.environ['JAX_PLATFORMS'] = 'cpu'

import jax

jax.config.update('jax_num_cpu_devices', 8)
