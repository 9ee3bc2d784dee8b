"""SKILL.md files become a catalog: found, parsed, validated, resolved by name, and searched."""
