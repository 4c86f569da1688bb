"""Errors of the user, and exceptions of libraries turned into them."""

from collections.abc import Callable, Generator, Iterator
import contextlib
import copy
import errno


class UserError(ValueError):
  """An error whose message alone tells the user what to do.

  Commands print it without a traceback, unlike any other exception.
  """


class UserFileError(OSError):
  """As `UserError`, for a file or an address that cannot be read."""


class NotFoundError(UserFileError, FileNotFoundError):
  """The user has named a file, a folder or data that do not exist."""


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


def within(where: str) -> contextlib.AbstractContextManager[None]:
  """Puts `where`, unless it is empty, in front of a `UserError`."""
  def rewrite(error: Exception) -> Exception | None:
    if not (where and isinstance(error, UserError)):
      return None
    better = copy.copy(error)  # Its class may take other arguments.
    better.args = (f'{where}: {error}',)
    return better

  return replaced_by(rewrite)


def naming(what: str) -> contextlib.AbstractContextManager[None]:
  """Replaces exceptions of a library by a `UserError` that names a file.

  Errors of the file system or of memory are kept.
  """
  def rewrite(error: Exception) -> Exception | None:
    # Arrow raises an OSError without a number for a damaged file, and a wrong
    # offset in an archive is an invalid argument of `seek`.
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and (
        error.errno not in (None, errno.EINVAL))):
      return None
    is_plain = isinstance(error, UserError) or type(error) is ValueError
    kind = '' if is_plain else f'{type(error).__name__}: '
    prefix = '' if what in str(error) else f'{what}: '
    return UserError(f'{prefix}{kind}{error}')

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
