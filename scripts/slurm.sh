#!/bin/bash
# One run on the nodes of a SLURM cluster: a process on each, with all its GPUs.
#
#   sbatch --nodes=4 --time=24:00:00 scripts/slurm.sh \
#     --config=configs/pretrain.py:model=B/16,dataset=imagenet2012 \
#     --workdir=/shared/runs/b16 --config.data.data_dir=/shared/tensorflow_datasets
#
# Takes what main.py takes. Start it in the repository, in a folder that all
# nodes see, with its environment in .venv; the workdir has to be shared too.
# What the cluster wants to know beside that (--partition, --account) goes
# before the script's name.
#SBATCH --job-name=vit-jax
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
# Two minutes before the time is over the run is told, and saves. A job that
# starts again writes at the end of the same log.
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=slurm-%j.log

# srun gives the highest status of all tasks. Where one fails, the others see it
# missing (76, 134) or are ended by srun (75, 137, 143), and its status is lost.
# So the first to end with one of its own leaves that in a file.
cause="$PWD/slurm-$SLURM_JOB_ID.cause"
rm -f "$cause"
# A signal comes to the shell as well, which then must wait for what is saved.
task='trap : TERM
"$@"
status=$?
case "$status" in
  0 | 75 | 76 | 134 | 143) ;;
  *) (set -o noclobber; echo "$status" > "$0") 2> /dev/null ;;
esac
exit "$status"'

# Without a word of ours, srun gives a task one core of the node.
srun --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_ON_NODE:?start it by sbatch}" \
  bash -c "$task" "$cause" "${PYTHON:-.venv/bin/python}" main.py "$@"
status=$?
[ ! -s "$cause" ] || read -r status < "$cause"
rm -f "$cause"

# 75: it saved when it was told to stop. 76, 134, 137, 143: a process was lost,
# hung or killed, or left while srun still waited. Each goes on from the last
# checkpoint; what fails every time must not come back for ever.
case "$status" in
  75 | 76 | 134 | 137 | 143)
    if [ "${SLURM_RESTART_COUNT:-0}" -lt "${MAX_RESTARTS:-100}" ]; then
      scontrol requeue "$SLURM_JOB_ID"
    fi
    ;;
esac
exit "$status"
