"""Running scripts of skills: what a run is given, the sandbox, packages and secrets."""
