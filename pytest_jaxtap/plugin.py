"""Hooks and nothing but hooks; imports no jax."""
