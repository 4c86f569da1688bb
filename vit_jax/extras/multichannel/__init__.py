"""Images with any number of channels, 16-bit integers or floats.

`registry.IMAGE_DECODER` names `decode.decode`, which reads the images of all
other `data.channels` and `data.dtype` than 8-bit grey and RGB: docs/data.md.
`registry.MEASURE` is `measure.measure`, the scale of their pixels.
"""
