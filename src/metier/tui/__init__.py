"""The picker: choose a skill by typing, see what it is, switch it on or off. It prints the choice, for shells.

`model` knows what is shown and needs no terminal; `screen` draws it with Textual, `plain` says it line by line. Names,
descriptions and bodies come from skill files and reach a screen only through `model.clean`, never as markup.
"""
