"""Creates, changes and removes skills on disk, for a person at a screen: what the web app does to files."""
