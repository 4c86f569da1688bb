"""Other input pipelines for `benchmarks/input_speed.py --compare`.

    python benchmarks/input_pipelines.py tf FOLDER [WORKERS] [RESOLUTION]
        [BATCH_SIZE]
    python benchmarks/input_pipelines.py torch FOLDER ...

Each follows the ImageNet recipe of its library: Inception crop, flip, bilinear
resize, batches of uint8. Reads numbers of batches from standard input and
answers with a line of JSON. Needs tensorflow, or torch and pillow, and nothing
of this codebase.
"""

import itertools
import json
import os
import pathlib
import sys


def tensorflow_batches(files, *, workers, resolution, batch_size):
  """Yields batches of tf.data, which decodes only the crop."""
  os.environ.update(CUDA_VISIBLE_DEVICES='', TF_CPP_MIN_LOG_LEVEL='3')
  import tensorflow as tf

  def load(path):
    data = tf.io.read_file(path)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(data), tf.zeros([0, 0, 4]),
        min_object_covered=0, area_range=(0.05, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3), use_image_if_no_bounding_boxes=True)
    window = tf.concat([begin[:2], size[:2]], 0)
    image = tf.image.decode_and_crop_jpeg(data, window, channels=3)
    image = tf.image.resize(image, (resolution, resolution))
    return tf.cast(tf.image.random_flip_left_right(image), tf.uint8)

  options = tf.data.Options()
  options.threading.private_threadpool_size = workers
  options.threading.max_intra_op_parallelism = 1
  return iter(
      tf.data.Dataset.from_tensor_slices(files).shuffle(len(files)).repeat()
      .map(load, num_parallel_calls=workers).batch(batch_size).prefetch(1)
      .with_options(options).as_numpy_iterator())


def torch_batches(files, *, workers, resolution, batch_size):
  """Yields batches of a PyTorch DataLoader with Pillow."""
  import math
  import random

  import numpy as np
  from PIL import Image
  import torch

  class Files(torch.utils.data.IterableDataset):
    """Images in random order, repeated without end."""

    def __iter__(self):
      torch.set_num_threads(1)
      while True:
        for path in random.sample(files, len(files)):
          yield self.load(path)

    def load(self, path):
      image = Image.open(path).convert('RGB')
      for _ in range(10):
        area = image.width * image.height * random.uniform(0.05, 1)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        width = round(math.sqrt(area * aspect))
        height = round(math.sqrt(area / aspect))
        if width <= image.width and height <= image.height:
          break
      width, height = min(width, image.width), min(height, image.height)
      left = random.randint(0, image.width - width)
      top = random.randint(0, image.height - height)
      image = image.resize(
          (resolution, resolution), Image.Resampling.BILINEAR,
          box=(left, top, left + width, top + height))
      if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
      return torch.from_numpy(np.array(image))

  return iter(torch.utils.data.DataLoader(
      Files(), batch_size=batch_size, num_workers=workers))


PIPELINES = {'tf': tensorflow_batches, 'torch': torch_batches}


def main(name, folder, workers=1, resolution=224, batch_size=64):
  """Reads the requested numbers of batches."""
  files = sorted(map(str, pathlib.Path(folder).rglob('*.jpg')))
  batches = PIPELINES[name](
      files, workers=int(workers), resolution=int(resolution),
      batch_size=int(batch_size))
  for line in sys.stdin:
    images = sum(map(len, itertools.islice(batches, int(line))))
    print(json.dumps({'images': images}), flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
