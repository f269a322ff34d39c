"""The vocabulary of plug-ins, and how they are found."""
