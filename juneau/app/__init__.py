"""Composition: the only modules that know every package."""
