"""Other orders of training examples than shuffled epochs of one dataset.

  mixture         several datasets together: `data.mixture`, `registry.MIXTURE`
  class_sampler   classes more evenly: `data.sampling`, `registry.SAMPLER`
"""
