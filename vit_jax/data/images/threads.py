"""Reads images in threads, a chunk ahead of the consumer.

Pillow decodes without holding the interpreter lock, so threads suffice.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
import itertools
import os
from typing import TypeVar

_THREADS = min(8, os.cpu_count() or 1)

Item = TypeVar('Item')
Result = TypeVar('Result')


def read_chunks(
    items: Iterable[Item], read: Callable[[Item], Result], *, size: int,
    errors: tuple[type[Exception], ...],
) -> Iterator[list[tuple[Item, Result | Exception]]]:
  """Yields chunks of (item, result or exception), in order.

  The next chunk of `size` items is read while the caller works on one; two are
  in memory. Exceptions of type `errors` are returned instead of raised.
  """
  def attempt(item: Item) -> tuple[Item, Result | Exception]:
    try:
      return item, read(item)
    except errors as error:
      return item, error

  remaining = iter(items)
  with futures.ThreadPoolExecutor(_THREADS) as pool:
    def submit() -> list[futures.Future]:
      return [pool.submit(attempt, item)
              for item in itertools.islice(remaining, size)]

    following = submit()
    while following:
      current, following = following, submit()
      yield [future.result() for future in current]
