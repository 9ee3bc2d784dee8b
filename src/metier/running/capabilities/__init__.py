"""What a skill names in its files, without running anything: imports, hosts, programs, files, secrets and commands.

Each look is a pure function over the sources of a skill. A look finds what is written plainly. What a
script builds at run time is not found, so this is a help to a person and never a reason to allow something.
"""
