"""`python -m metier` is the command `metier`, for where the folder of scripts is not on the PATH."""

from metier.surfaces.cli import main

if __name__ == "__main__":
    main()
