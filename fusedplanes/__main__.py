"""`python -m fusedplanes` is the `fusedplanes` command."""

from fusedplanes.cli.main import main

if __name__ == "__main__":
    main()
