"""Cluster scripts are valid, and their arguments are those of main.py."""

import pathlib
import re
import shlex
import subprocess

import pytest

from tests import test_readme

ROOT = pathlib.Path(__file__).parents[1]
SHELL = sorted((ROOT / 'scripts').glob('*.sh'))


@pytest.mark.parametrize('path', SHELL, ids=lambda path: path.name)
def test_scripts_are_valid_and_their_examples_parse(path):
  subprocess.run(['bash', '-n', path], check=True)
  comments = '\n'.join(
      line.removeprefix('#') for line in path.read_text().splitlines()
      if line.startswith('# '))
  example = re.search(
      rf'scripts/{path.name} (.*)', comments.replace('\\\n', ' '))
  test_readme.check_arguments(shlex.split(example.group(1)))


def test_pod_commands_keep_quoted_arguments(tmp_path):
  # Replaces gcloud: prints the command of the hosts.
  gcloud = tmp_path / 'gcloud'
  gcloud.write_text('#!/bin/bash\nfor last; do :; done\n'
                    'printf %s "${last#--command=}"\n')
  gcloud.chmod(0o755)
  words = ['--config=a b.py', "--config.x='y'", '--workdir=$HOME;false']
  command = subprocess.run(
      [ROOT / 'scripts' / 'tpu_pod.sh', *words], check=True, text=True,
      capture_output=True, env={
          'PATH': f'{tmp_path}:/usr/bin:/bin', 'TPU': 't', 'ZONE': 'z'}).stdout
  assert shlex.split(command)[-3:] == words


def test_the_kubernetes_job_uses_all_chips_and_parses():
  yaml = pytest.importorskip('yaml')
  service, job = yaml.safe_load_all((ROOT / 'scripts/gke.yaml').read_text())
  spec, pod = job['spec'], job['spec']['template']['spec']
  # Only the service defines the host names of the pods.
  assert pod['subdomain'] == service['metadata']['name']
  assert service['spec']['selector'] == {'job-name': job['metadata']['name']}
  (container,) = pod['containers']
  rows, columns = map(int, pod['nodeSelector'][
      'cloud.google.com/gke-tpu-topology'].split('x'))
  chips = container['resources']['limits']['google.com/tpu']
  assert rows * columns == chips * spec['parallelism']
  test_readme.check_arguments(container['command'][2:])


# Replaces srun: runs tasks one after the other in their own process groups
# and returns the highest status.
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
highest=0
for SLURM_PROCID in $(seq 0 $((TASKS - 1))); do
  export SLURM_PROCID
  setsid --wait "$@"
  status=$?
  highest=$((status > highest ? status : highest))
done
exit $highest
"""


def run_on_slurm(folder, ends, *, restarts):
  """Runs the script with one shell command per task.

  Returns:
    The status of the script, and whether it requeued the job.
  """
  bodies = {
      'srun': SRUN, 'scontrol': f'#!/bin/bash\necho "$@" > {folder}/requeued\n',
      'python': '#!/bin/bash\ncase $SLURM_PROCID in\n' + ''.join(
          f'{i}) {end} ;;\n' for i, end in enumerate(ends)) + 'esac\n'}
  for name, body in bodies.items():
    (folder / name).write_text(body)
    (folder / name).chmod(0o755)
  done = subprocess.run(
      ['bash', ROOT / 'scripts' / 'slurm.sh', '--config=x.py'], check=False,
      cwd=folder, capture_output=True, text=True, timeout=60, env={
          'PATH': f'{folder}:/usr/bin:/bin', 'SLURM_JOB_ID': '7',
          'PYTHON': str(folder / 'python'), 'SLURM_CPUS_ON_NODE': '2',
          'SLURM_RESTART_COUNT': str(restarts), 'TASKS': str(len(ends))})
  assert sorted(path.name for path in folder.iterdir()) == sorted(
      {*bodies, *(['requeued'] if (folder / 'requeued').exists() else [])})
  return done.returncode, (folder / 'requeued').exists()


@pytest.mark.parametrize(('ends', 'restarts', 'status', 'requeued'), [
    (['exit 0'], 0, 0, False),
    (['exit 2'], 0, 2, False),  # A user error would occur again.
    (['exit 75'], 0, 75, True), (['exit 134'], 3, 134, True),
    (['exit 76'], 100, 76, False),
    # One task fails permanently; srun or a timeout ends the others.
    (['exit 76', 'exit 1', 'exit 143'], 0, 1, False),
    # One task is killed, which makes another fail.
    (['kill -9 $$', 'exit 1'], 0, 137, True)])
def test_slurm_requeues_jobs_whose_first_failed_task_is_resumable(
    tmp_path, ends, restarts, status, requeued):
  assert run_on_slurm(tmp_path, ends, restarts=restarts) == (status, requeued)
