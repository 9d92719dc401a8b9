"""For our users' tests as much as for ours."""
