"""Files of skills, read without ever leaving the skill's folder; the text in them, and the digests that name them."""
