"""Many runs: which, by whom, and where their records go."""
