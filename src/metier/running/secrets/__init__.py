"""Secrets of the user: where they are kept, and how their values are kept out of everything that is shown."""
