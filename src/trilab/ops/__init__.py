"""Operations that several strategies share, each beside its slow truth."""
