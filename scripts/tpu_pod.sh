#!/bin/bash
# One run on all hosts of a TPU slice, started from any machine with gcloud.
#
#   TPU=my-slice ZONE=us-central2-b scripts/tpu_pod.sh \
#     --config=configs/pretrain.py:model=L/16,dataset=imagenet2012 \
#     --workdir=gs://BUCKET/l16 --config.data.data_dir=gs://BUCKET/tensorflow_datasets
#
# The arguments are those of main.py. The repository must be in ~/vit-jax on each
# host, with `pip install '.[tpu]'` in its .venv.
set -euo pipefail
: "${TPU:?must be the name of the slice}" "${ZONE:?must be its zone}"

# Quotes the arguments again, for the shell on the hosts.
printf -v arguments ' %q' "$@"
exec gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --worker=all \
  --command="cd ~/vit-jax && .venv/bin/python main.py$arguments"
