"""Does the engine say what the model alone would say? Measured, for anyone's models and prompts."""
