"""Commands for this machine: `headrace up` with its child processes, and `headrace doctor`."""
