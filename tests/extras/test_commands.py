"""Commands of leaves offer the choices of their modules."""

from tests.test_main import flags
from vit_jax.extras.curation import beam_runner
from vit_jax.extras.curation import hash_index
from vit_jax.extras.curation import output
from vit_jax.extras.curation import similarity
from vit_jax.extras.serve import export


def test_commands_offer_the_choices_of_the_library():
  # Commands repeat them, because the library takes seconds to import.
  assert flags('export')['--format'].choices == tuple(export.PROGRAMS)
  prepare = flags('data', 'prepare')
  assert prepare['--runner'].default == beam_runner.LOCAL
  duplicates = flags('deduplicate')
  for name in (output.EXCLUDE, output.PAIRS, output.PAGE):
    assert name in duplicates['--to'].help
  assert f'up to {hash_index.MAX_DISTANCE} ' in duplicates[
      '--max-distance'].help
  for found in (duplicates, flags('data', 'check')):
    assert similarity.Thresholds() == similarity.Thresholds(
        found['--max-distance'].default, found['--min-similarity'].default)
