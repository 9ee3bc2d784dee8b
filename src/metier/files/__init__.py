"""The files of skills: opened beneath the skill's folder, decoded as text, and named by digest."""
