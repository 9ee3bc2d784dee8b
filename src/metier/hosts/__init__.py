"""The hosts: each one's rules as a TOML profile, and the shapes of its prompts and tools as a module in `formats`."""
