"""The `juneau` command: a module per sub-command. What is slow to import is imported where it is used."""
