"""The configuration files of programs that start `metier mcp`: where they are, and one entry in each.

A file belongs to its program and its user. Only Metier's own entry is written, the rest stays as it is byte for byte,
and a file that cannot be changed that way is left alone.
"""
