"""The service that `onceward serve` runs, in parts that know nothing of each other."""
