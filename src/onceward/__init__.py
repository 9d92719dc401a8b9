"""Onceward."""
