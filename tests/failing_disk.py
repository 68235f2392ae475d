"""A file system that takes no more changes below one folder, for anyone, on any system: no mount, no rights needed."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

REMOVALS = ("os.remove", "os.rmdir", "shutil.rmtree")
CHANGES = ("os.rename", "os.mkdir", "os.chmod", "os.truncate", *REMOVALS)


class FailingDisk:
    """Counts the changes that Python makes below a folder and refuses all from a certain one on.

    A full disk (ENOSPC) still lets files be removed; a read-only one (EROFS) refuses that too. Python announces every
    change before it makes it (`sys.addaudithook`); what fails while bytes are written has tests of its own.
    """

    def __init__(self) -> None:
        self._folder, self._code, self._left, self.count = "", 0, None, 0
        sys.addaudithook(self._announced)

    @contextlib.contextmanager
    def after(self, changes: int | None, folder: Path, code: int = errno.ENOSPC) -> Iterator[None]:
        """Let so many changes pass, and refuse those that follow; None only counts."""
        self._folder, self._code, self._left, self.count = str(folder.resolve()), code, changes, 0
        try:
            yield
        finally:
            self._folder = ""

    def _announced(self, event: str, arguments: tuple) -> None:
        if not self._folder or not arguments or not isinstance(arguments[0], str | os.PathLike):
            return
        if event == "open":
            changes = arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        else:
            changes = event in CHANGES and not (event in REMOVALS and self._code == errno.ENOSPC)
        path = os.path.abspath(arguments[0])
        if not changes or not path.startswith(self._folder):
            return
        self.count += 1
        if self._left is not None and self.count > self._left:
            raise OSError(self._code, os.strerror(self._code), path)
