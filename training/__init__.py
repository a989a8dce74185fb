"""The training of the encoder, and the choice and evaluation of everything that was fitted to data."""
