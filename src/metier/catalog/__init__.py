"""Turns SKILL.md files into a catalog: finds, parses, validates, resolves by name, and searches them."""
