"""The picker: find a skill by typing, preview it, switch it on or off, and print the choice for a shell.

`model` decides what is shown and needs no terminal. `screen` draws it with Textual, and `plain` is a line-by-line
dialogue. The invariant: text from skill files reaches a screen only through `model`, and never as markup.
"""
