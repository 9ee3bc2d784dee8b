"""Skills for agent frameworks: one adapter for each, in the framework's own idiom.

An adapter translates and decides nothing. Tools, prompts and results come from the session, and the rules for what is
shown and asked are in `conversation`. Only its own adapter imports a framework; if it is missing, the error names the
command that installs it.
"""
