"""Sends an image to TensorFlow Serving.

    python tensorflow_serving.py cat.jpg
"""

import json
import sys
from urllib import request

import numpy as np
import preprocess

settings = preprocess.read_settings('model.json')
with open(sys.argv[1], 'rb') as file:
  images = preprocess.to_array(file.read(), settings)[None]
http_request = request.Request(
    'http://localhost:8501/v1/models/vit:predict',
    json.dumps({'inputs': {'images': images.tolist()}}).encode(),
    {'Content-Type': 'application/json'})
with request.urlopen(http_request) as answer:
  logits = np.asarray(json.load(answer)['outputs']['logits'][0])
print(preprocess.top_classes(logits, settings))
