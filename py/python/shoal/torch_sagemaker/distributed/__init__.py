"""Operations of several ranks."""
