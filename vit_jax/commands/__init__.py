"""What a user can do: one file a command, with add_arguments and run."""
