"""A trained model and a text → the text that it writes, or how well it guesses each character."""
