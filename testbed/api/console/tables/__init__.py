"""The tables of a page: rows as `inspect` and `stats` have them, chosen by the same words."""
