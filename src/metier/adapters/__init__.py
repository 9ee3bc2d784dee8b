"""Skills for agent frameworks, each adapter in its framework's own idiom.

An adapter translates and decides nothing: tools, prompts and answers are the session's, and what is shown or asked when
is in `conversation`. A framework is imported by its own adapter only; one that is missing names its install line.
"""
