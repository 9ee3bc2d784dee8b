"""Benchmarks: what Metier costs, as ratios against a floor and against peers that are measured in the same run.

`python -m bench [names...]` runs them; each is a module of `bench.cases` with a `run(options)` that returns rows. A new
benchmark is a new module there and nothing else.
"""
