"""One module per benchmark, named for it: `run(options) -> list[Row]` is all that a new one needs."""
