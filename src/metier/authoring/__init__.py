"""Tools for people who write skills: check them against every host, fix what can be fixed, and edit their files."""
