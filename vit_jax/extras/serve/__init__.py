"""Export to StableHLO and ONNX, and quantization to int8."""
