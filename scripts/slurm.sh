#!/bin/bash
# One run on nodes of a SLURM cluster, with one process per node and all GPUs.
#
#   sbatch --nodes=4 --time=24:00:00 scripts/slurm.sh \
#     --config=configs/pretrain.py:model=B/16,dataset=imagenet2012 \
#     --workdir=/shared/runs/b16 --config.data.data_dir=/shared/tensorflow_datasets
#
# The arguments are those of main.py. Submit the script in the repository, which
# must lie in a folder that all nodes share, with the environment in .venv. The
# workdir must be shared, too. Other options of the cluster (--partition,
# --account) go before the script's name.
#SBATCH --job-name=vit-jax
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
# SIGTERM is sent two minutes before the time limit, so that the run saves a
# checkpoint. A requeued job appends to the same log.
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=slurm-%j.log

# srun exits with the highest status of all tasks. If one task fails, the others
# report it as lost (76, 134) or are ended by srun (75, 137, 143), which hides
# its status. The first task that fails with another status writes it to a file.
cause="$PWD/slurm-$SLURM_JOB_ID.cause"
rm -f "$cause"
# The shell also receives the signal, and must wait while the task saves.
task='trap : TERM
"$@"
status=$?
case "$status" in
  0 | 75 | 76 | 134 | 143) ;;
  *) (set -o noclobber; echo "$status" > "$0") 2> /dev/null ;;
esac
exit "$status"'

# By default, JAX takes one GPU per task.
if [ "${SLURM_GPUS_ON_NODE:-0}" -gt 0 ]; then
  JAX_LOCAL_DEVICE_IDS=$(seq -s, 0 $((SLURM_GPUS_ON_NODE - 1)))
  export JAX_LOCAL_DEVICE_IDS
fi

# By default, srun gives a task only one core of the node.
srun --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_ON_NODE:?start it by sbatch}" \
  bash -c "$task" "$cause" "${PYTHON:-.venv/bin/python}" main.py "$@"
status=$?
[ ! -s "$cause" ] || read -r status < "$cause"
rm -f "$cause"

# 75: the run saved a checkpoint after SIGTERM. 76, 134, 137, 143: a process was
# lost, hung or was killed, or srun ended it. The requeued job resumes from the
# last checkpoint. The limit stops jobs that always fail.
case "$status" in
  75 | 76 | 134 | 137 | 143)
    if [ "${SLURM_RESTART_COUNT:-0}" -lt "${MAX_RESTARTS:-100}" ]; then
      scontrol requeue "$SLURM_JOB_ID"
    fi
    ;;
esac
exit "$status"
