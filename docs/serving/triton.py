"""Sends an image to NVIDIA Triton.

    python triton.py cat.jpg
"""

import sys

import preprocess
from tritonclient import http  # pip install "tritonclient[http]"

settings = preprocess.read_settings('model.onnx.json')
with open(sys.argv[1], 'rb') as file:
  images = preprocess.to_array(file.read(), settings)[None]
image_input = http.InferInput('images', images.shape, 'FP32')
image_input.set_data_from_numpy(images)
client = http.InferenceServerClient('localhost:8000')
logits = client.infer('vit', [image_input]).as_numpy('logits')[0]
print(preprocess.top_classes(logits, settings))
