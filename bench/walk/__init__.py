"""The random walk: real processes work on one session, its files change under them, and its record must still be right.

`python -m bench.walk` runs many sessions. Each has its own folder, skills and store, and a profile. Afterwards its
record verifies and replays, every ref answers, and no process died. `python -m bench.walk --kills 200` kills processes
instead: what they had acknowledged must be there.
"""
