"""Images with any number of channels, 16-bit integers or floats.

`registry.IMAGE_DECODER` names `decode.decode`, which reads images that are not
8-bit grey or RGB (`data.channels`, `data.dtype`); see docs/data.md.
`registry.MEASURE` is `measure.measure`, the scale of their pixels.
"""
