"""The pytest plug-in that comes with the package."""
