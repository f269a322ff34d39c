"""The command line: commands for people and programs, which ask coordinators or start them."""
