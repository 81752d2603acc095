"""What happened, step by step, in a file: written while an engine runs, read and summed up later."""
