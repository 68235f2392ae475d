"""The `fusedplanes` command: finds the module of a verb, and turns errors into one line and exit status 2."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = {
    "demo": ("fusedplanes.cli.demo", "train on a small made-up class and leave pictures, a video and a report"),
    "data": ("fusedplanes.cli.data", "make a data set: `data make CLASS`, `data from-meshes DIR`, `data check DIR`"),
    "train": ("fusedplanes.cli.train", "train a class of objects from a data set"),
    "add": ("fusedplanes.cli.add", "add new objects to a trained run"),
    "objects": ("fusedplanes.cli.objects", "list, delete or merge the objects of a run: `objects list RUN`"),
    "render": ("fusedplanes.cli.render", "render an orbit video or still views of trained objects"),
    "evaluate": ("fusedplanes.cli.evaluate", "measure a run on held-out views"),
    "export": ("fusedplanes.cli.export", "write an object's planes or its mesh"),
}

LONGEST_LINE = 2000
"""Characters of an error message."""


def usage() -> str:
    """The text of `fusedplanes --help`."""
    lines = ["usage: fusedplanes COMMAND [OPTIONS]", "", "Compact planar representations of object classes.", ""]
    lines += [f"  {name:<10} {summary}" for name, (_, summary) in COMMANDS.items()]
    lines += ["", "`fusedplanes COMMAND --help` lists the options of a command, with units and defaults."]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Run a command line; exits with 0, 2 (wrong input) or 130 (interrupted)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return
    if arguments[0] == "--version":
        from fusedplanes import __version__

        print(f"fusedplanes {__version__}")
        return
    name, *rest = arguments
    if name not in COMMANDS:
        fail(f"there is no command '{name}'; choose one of {', '.join(COMMANDS)}")
    from fusedplanes.errors import FusedPlanesError

    try:
        import_module(COMMANDS[name][0]).main(rest)
    except FusedPlanesError as error:
        fail(str(error), getattr(error, "exit_status", 2))
    except KeyboardInterrupt:
        fail("interrupted", 130)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        # A disk that fills up or a folder that turns read-only is the user's to mend; it needs no traceback.
        fail(f"{error.filename or 'file system'}: {error.strerror or error}")


def fail(message: str, status: int = 2) -> None:
    """Print one line to standard error and exit."""
    # Names and values from outside may be of any length and hold anything, terminal control codes too.
    line = "".join(letter if letter.isprintable() else " " for letter in " ".join(message.split()))
    print(f"error: {line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + '...'}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
