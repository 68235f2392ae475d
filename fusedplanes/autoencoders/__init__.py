"""Autoencoders: the latent spaces in which fields are trained. `image` maps single images."""
