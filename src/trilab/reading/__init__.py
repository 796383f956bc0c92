"""Files of text → corpora: where the bytes lie, what characters they are, which token ids these become."""
