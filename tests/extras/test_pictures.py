"""What several leaves do with images."""

from vit_jax.extras import pictures


def test_interleaving_takes_one_file_of_each_folder_in_turn():
  assert pictures.interleave(
      ['a/1', 'a/2', 'a/3', 'b/1', 'c/1', 'c/2']) == [
          'a/1', 'b/1', 'c/1', 'a/2', 'c/2', 'a/3']
