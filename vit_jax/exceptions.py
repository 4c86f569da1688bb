"""Replaces exceptions of libraries with errors that advise the user."""

from collections.abc import Callable, Generator, Iterator
import contextlib
import errno


@contextlib.contextmanager
def replaced_by(
    rewrite: Callable[[Exception], Exception | None],
) -> Generator[None, None, None]:
  """Replaces exceptions of the context with the results of `rewrite`.

  Args:
    rewrite: returns the exception to raise instead, with the original as its
      cause; None keeps the original.
  """
  try:
    yield
  except Exception as error:
    better = rewrite(error)
    if better is None:
      raise
    raise better from error


def naming(what: str) -> contextlib.AbstractContextManager[None]:
  """Replaces exceptions of a library by a ValueError that names a file.

  Errors of the file system or of memory are kept.
  """
  def rewrite(error: Exception) -> Exception | None:
    # Arrow raises an OSError without a number for a damaged file, and a wrong
    # offset in an archive is an invalid argument of `seek`.
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and (
        error.errno not in (None, errno.EINVAL))):
      return None
    kind = '' if type(error) is ValueError else f'{type(error).__name__}: '
    prefix = '' if what in str(error) else f'{what}: '
    return ValueError(f'{prefix}{kind}{error}')

  return replaced_by(rewrite)


def causes(error: BaseException) -> Iterator[BaseException]:
  """Yields an exception and those that led to it, the latest first."""
  link: BaseException | None = error
  while link is not None:
    yield link
    link = link.__cause__ or (
        None if link.__suppress_context__ else link.__context__)


def first_line(error: BaseException, *, max_characters: int = 200) -> str:
  """Returns the first line of a message, or the type if it is empty."""
  lines = str(error).splitlines() or [type(error).__name__]
  return lines[0][:max_characters].rstrip('. ')
